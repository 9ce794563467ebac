"""One Ray on two logical cores for all tests of this folder, and small federations to run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raffed import Data, Federation, Local, Model, RunConfig, Runtime
from raffed.runs.events import RoundEvent

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    import ray

    from raffed.runtime.ray.own_ray import OwnRay

    # Another folder's tests use this fixture too, and pytest then makes it once for each
    if ray.is_initialized():
        yield
        return
    own = OwnRay()
    with pytest.MonkeyPatch.context() as environment:  # its workers import nothing from the current folder
        environment.setenv("PYTHONPATH", str(ROOT))
        own.start(num_cpus=2)
    yield
    own.end()


def together(watchers: Sequence[Callable[[RoundEvent], None]]) -> Any:
    """One watcher that calls these in order."""
    return lambda event: [watcher(event) for watcher in watchers]


def small(method: str = "scamap", rounds: int = 4, **runtime: Any) -> RunConfig:
    """Ten clients of digits, five a round, a method with every kind of private state."""
    return RunConfig(
        method=method,
        data=Data(local_test=0.2),
        model=Model("mlp", {"hidden": [16]}),
        local=Local(epochs=1, batch_size=32),
        federation=Federation(rounds=rounds, participation=0.5),
        runtime=Runtime(**{"execution": "serial", "checkpoint_every": 2, **runtime}),
    )


def on(config: RunConfig, **runtime: Any) -> RunConfig:
    """The same run somewhere else."""
    return replace(config, runtime=replace(config.runtime, **runtime))


CARRIERS = ("socket", "shared memory", "ray")


def by_every_carrier(fast: str) -> pytest.MarkDecorator:
    """Parametrize a test over the transports: `fast` is in `make test`, the others in `make test-slow`."""
    assert fast in CARRIERS
    each = [one if one == fast else pytest.param(one, marks=pytest.mark.slow) for one in CARRIERS]
    return pytest.mark.parametrize("carrier", each, indirect=True)


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The transport by which a pool in this process calls its actors. Sockets are used as for small networks,
    and with every array in shared memory.
    """
    if request.param == "shared memory":
        monkeypatch.setattr("raffed.runtime.ray.serving.ASIDE", 1)
    if request.param == "ray":
        monkeypatch.setattr("raffed.runtime.ray.driver.opened", lambda through_ray, *_: through_ray)
    return str(request.param)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Hashes of the uninterrupted serial run, by method."""
    import raffed

    folder = tmp_path_factory.mktemp("serial")
    return {
        name: raffed.run(small(name), Path(folder) / name).hashes for name in ("fedavg", "fedmr", "scamap")
    }


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was stopped after three of four rounds, with checkpoints after the second and the third."""
    import raffed
    from raffed.runs.checkpoint import checkpoints

    path, seen = tmp_path / "run", list[int]()
    raffed.run(small(), path, watch=lambda event: seen.append(event.round), stop=lambda: len(seen) == 3)
    assert [one.name for one in checkpoints(path)] == ["round-000002", "round-000003"]
    return path
