"""`ray up` and `ray submit` with the file for machines with ssh, on a head that sshd guards.

The head is this machine in namespaces of its own: `ray up` ends every Ray that it sees on a head, and there
it sees no other. It needs openssh-server, rsync, ip and root (apt-get install openssh-server rsync iproute2).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import raffed
from tests.cluster.nodes import ROOT

LAUNCHER = ROOT / "cluster" / "launcher"
SSHD = "/usr/sbin/sshd"
NEEDED = (SSHD, "ssh-keygen", "rsync", "ip", "unshare")
OUTSIDE, HEAD = "10.213.7.1", "10.213.7.2"


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Path]:
    """The home folder of a head that can be reached by ssh at HEAD; skipped where none can be made."""
    if os.getuid() or not all(shutil.which(one) for one in NEEDED):
        pytest.skip("needs root, openssh-server, rsync and iproute2")
    home = tmp_path / "home"
    home.mkdir()
    (home / "raffed").symlink_to(sys.prefix)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    (home / ".profile").write_text(f"cd {home}\nexport PYTHONPATH={ROOT} OMP_NUM_THREADS=1\n")
    if _ip("netns add raffed-head") or _ip("link add raffed-o type veth peer raffed-i"):
        _ip("netns delete raffed-head")
        pytest.skip("network namespaces are not permitted here")
    inside = "-n raffed-head"
    for words in (
        "link set raffed-i netns raffed-head",
        f"address add {OUTSIDE}/24 dev raffed-o",
        "link set raffed-o up",
        f"{inside} address add {HEAD}/24 dev raffed-i",
        f"{inside} link set raffed-i up",
        f"{inside} link set lo up",
    ):
        _ip(words)
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    options = {
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
        "SetEnv": f"HOME={home}",
        "UsePAM": "no",
    }
    asked = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    spaces = ["ip", "netns", "exec", "raffed-head"]
    spaces += ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    own_ray = ["sh", "-c", 'mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray && exec "$@"', "sh"]
    command = [*spaces, *own_ray, SSHD, "-D", "-e", "-f", "/dev/null", *asked]
    sshd = subprocess.Popen(command, start_new_session=True)
    try:
        yield home
    finally:
        os.killpg(sshd.pid, signal.SIGKILL)  # the first process of the namespace, and with it all others
        sshd.wait()
        _ip("link delete raffed-o")
        _ip("netns delete raffed-head")
        Path("/tmp/ray/cluster-raffed-test.state").unlink(missing_ok=True)
        Path("/tmp/ray/cluster-raffed-test.lock").unlink(missing_ok=True)


def _ip(words: str) -> int:
    return subprocess.run(["ip", *words.split()], capture_output=True, check=False).returncode


@pytest.mark.slow
def test_ray_up_and_ray_submit_write_to_shared_storage_what_report_reads(head: Path, tmp_path: Path) -> None:
    file = _filled_in(tmp_path)
    mine = tmp_path / "mine"
    (mine / ".ray").mkdir(parents=True)
    (mine / ".ray" / "auth_token").write_text("f" * 64)
    env = {
        **os.environ,
        "HOME": str(mine),
        "RAY_TMPDIR": str(mine),
        "RAY_USAGE_STATS_ENABLED": "0",
        "TERM": "xterm",
    }

    def ray(command: str, *words: object) -> str:
        line = [sys.executable, "-m", "ray.scripts.scripts", command, "--no-config-cache", *map(str, words)]
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    _wait_for_ssh()
    ray("up", "--yes", file)
    shared = tmp_path / "shared"
    words = ["--address", "auto", "--out", str(shared / "map"), "--rounds", "2"]
    assert "finished, accuracy" in ray("submit", file, LAUNCHER / "job.py", *words)
    report = raffed.report(shared, tmp_path / "report", progress=False)
    assert len(report.table) == 1
    assert (head / "job.py").exists()


def _filled_in(tmp_path: Path) -> Path:
    """local.yaml as README.md says it is filled in, with a head and no worker."""
    about = yaml.safe_load((LAUNCHER / "local.yaml").read_text())
    about["provider"].update(head_ip=HEAD, worker_ips=[])
    about["auth"].update(ssh_user="root", ssh_private_key=str(tmp_path / "user"))
    about["max_workers"] = 0
    about["cluster_name"] = "raffed-test"
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(about))
    return path


def _wait_for_ssh() -> None:
    import socket

    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection((HEAD, 22), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("sshd did not answer within 30 s")
