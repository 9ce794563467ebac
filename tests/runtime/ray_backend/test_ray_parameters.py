"""Ray's own classes are changed while a Ray starts, and are then as they were."""

from __future__ import annotations

import pytest
from ray._private.node import Node
from ray._private.parameter import RayParams

from raffed.runtime.ray_backend.ray_parameters import API_SERVER, PARAMETERS, lean_ray


@pytest.mark.parametrize(("owner", "name"), [(RayParams, PARAMETERS), (Node, API_SERVER)])
def test_a_method_is_another_one_only_while_a_ray_starts(owner: type, name: str) -> None:
    own = getattr(owner, name)

    def start() -> None:
        with lean_ray(None):
            assert getattr(owner, name) is not own
            raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        start()
    assert getattr(owner, name) is own


@pytest.mark.parametrize(("owner", "name"), [(RayParams, PARAMETERS), (Node, API_SERVER)])
def test_a_version_of_ray_without_the_method_starts_as_it_likes(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, name)
    with lean_ray(None):
        assert not hasattr(owner, name)
    assert not hasattr(owner, name)


def test_parameters_that_ray_would_fill_in_are_those_of_a_lean_one() -> None:
    told = RayParams()
    with lean_ray("worker.py"):
        told.update_if_absent(include_log_monitor=True, worker_path="rays.py", num_cpus=3)
    assert (told.include_log_monitor, told.worker_path, told.num_cpus, told.no_monitor) == (
        False,
        "worker.py",
        3,
        True,
    )
