"""A node whose raffed is not that of the command: nothing is trained there, and the message says which node.

On the second node one file of raffed ends with one more line. It would give the same bits, but nobody can
know that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes import ROOT, Cluster, with_mount

pytestmark = pytest.mark.slow

SMALL = ("--split", "iid:4", "--rounds", "1", "--actors", "2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The second node sees another file at the same path, as a machine with a disk of its own does.

    A folder of another name would not do: Ray gives its processes the search path of the command.
    """
    file = ROOT / "raffed" / "core" / "seeds.py"
    changed = tmp_path_factory.mktemp("other") / "seeds.py"
    changed.write_text(file.read_text() + "# changed on this node\n")
    with Cluster(workers=1, prefixes=[(), with_mount(f"mount --bind {changed} {file}")]) as made:
        yield made


def command(cluster: Cluster, *words: object) -> subprocess.CompletedProcess[str]:
    """raffed on the head's machine, joining the cluster."""
    start = [sys.executable, "-m", "raffed", *map(str, words), "--address", cluster.gcs_address]
    return subprocess.run(
        start, env=cluster.environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def test_an_actor_on_such_a_node_ends_the_run(cluster: Cluster, tmp_path: Path) -> None:
    done = command(cluster, "run", "--method", "fedavg", *SMALL, "--out", tmp_path / "run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "could not start" in done.stderr
    assert "the hash of raffed's files is" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("what", [("run", "--method", "scamap"), ("tune", "--method", "fedavg")])
def test_what_needs_a_shared_folder_is_refused_before_it_begins(
    cluster: Cluster, tmp_path: Path, what: tuple[str, ...]
) -> None:
    """All nodes are asked there anyway."""
    done = command(cluster, *what, *SMALL, "--out", tmp_path / "none")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the hash of raffed's files is" in done.stderr
    assert not (tmp_path / "none").exists()


def test_doctor_names_the_node(cluster: Cluster) -> None:
    done = command(cluster, "doctor", "--ray")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the hash of raffed's files is" in " ".join(done.stdout.split())
