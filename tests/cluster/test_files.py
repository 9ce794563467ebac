"""The files of cluster/: valid for the tools that read them, locked by default, holding commands that exist;
and the whole Slurm script on this machine with stand-ins for srun and scontrol.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import yaml

from raffed.cli.submitting import SUBMITTED, checked

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
EVERYTHING = sorted(path for path in CLUSTER.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
# Of every object that a manifest fills in the names and types of all its fields, and what lies below those
# that are filled in. It was cut from the 2.3 MB of helm-chart/kuberay-operator/crds at KubeRay's tag v1.7.0.
SCHEMAS = json.loads(Path(__file__).with_name("kuberay_crds.json").read_text())


def manifests(kind: str) -> list[dict[str, Any]]:
    """The objects of a kind in cluster/kuberay."""
    texts = [path.read_text() for path in sorted((CLUSTER / "kuberay").glob("*.yaml"))]
    return [one for text in texts for one in yaml.safe_load_all(text) if one and one["kind"] == kind]


OBJECTS = [pytest.param(one, id=kind) for kind in ("RayCluster", "RayJob") for one in manifests(kind)]
LAUNCHERS = {
    name: yaml.safe_load((CLUSTER / "launcher" / name).read_text()) for name in ("local.yaml", "aws.yaml")
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_ray_takes_a_launcher_file_which_starts_it_with_a_token_and_a_dashboard_on_localhost(
    name: str,
) -> None:
    """Its schema, and the code that `ray up` calls before it starts anything."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    spec = importlib.util.find_spec("ray")
    schema = json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    config = copy.deepcopy(LAUNCHERS[name])
    jsonschema.validate(config, schema)
    config["auth"].pop("ssh_private_key", None)  # a file of the person's own machine
    whole = prepare_config(copy.deepcopy(config))
    validate_config(whole)
    assert whole["head_start_ray_commands"] == config["head_start_ray_commands"]
    commands = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    head, worker = [line for line in commands if "ray start" in line]
    assert "RAY_AUTH_MODE=token" in head
    assert "RAY_AUTH_MODE=token" in worker
    assert "--dashboard-host=127.0.0.1" in head
    assert "~/.ray/auth_token" in config["file_mounts"]


def test_the_login_line_lets_ray_submit_find_environment_and_token_and_is_written_once(
    tmp_path: Path,
) -> None:
    login = next(step for step in LAUNCHERS["local.yaml"]["setup_commands"] if "RAFFED_LOGIN" in step)
    for _ in range(2):
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        subprocess.run(["bash", "-c", login], env=environment, check=True)
    written = (tmp_path / ".profile").read_text()
    assert written.count("RAFFED_LOGIN") == 1
    assert "/raffed/bin:$PATH" in written
    assert "RAY_AUTH_MODE=token" in written


@pytest.mark.parametrize("one", OBJECTS)
def test_kuberay_takes_a_manifest_which_asks_for_a_token_and_opens_no_door(one: dict[str, Any]) -> None:
    jsonschema.validate(one, SCHEMAS[one["kind"]])
    cluster = one["spec"] if one["kind"] == "RayCluster" else one["spec"]["rayClusterSpec"]
    assert cluster["authOptions"]["mode"] == "token"
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert cluster["headGroupSpec"]["enableIngress"] is False
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    if one["kind"] == "RayJob":  # the operator refuses a time to live without an end, which no schema knows
        assert one["spec"]["shutdownAfterJobFinishes"] is True
        assert one["spec"]["ttlSecondsAfterFinished"] > 0


@pytest.mark.parametrize("name", ["raycluster.yaml", "rayjob.yaml"])
def test_a_manifest_closes_the_network(name: str) -> None:
    objects = yaml.safe_load_all((CLUSTER / "kuberay" / name).read_text())
    assert [one["kind"] for one in objects if one].count("NetworkPolicy") == 1


def test_the_slurm_script_starts_ray_with_a_token_and_a_dashboard_on_localhost() -> None:
    text = (CLUSTER / "slurm" / "raffed.sbatch").read_text()
    assert "RAY_AUTH_MODE=token" in text
    assert text.count("--dashboard-host 127.0.0.1") == 1
    assert not re.search(r"RAY_AUTH_TOKEN=", text)  # others see an argument or an environment


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: path.name)
def test_no_file_holds_a_secret_or_opens_the_dashboard(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"AKIA[0-9A-Z]{12}|-----BEGIN|\b[0-9a-f]{64}\b", text)
    assert not re.search(r"dashboard-host[= ]+0\.0\.0\.0", text)
    assert "RAY_AUTH_MODE=disabled" not in text


def commands(text: str) -> list[list[str]]:
    """The words of every `raffed …` and `python -m raffed …` line in shell blocks and entry points."""
    start = r"(?:^|-- |entrypoint: )(?:[\w./~]*python -m )?raffed (\w[^\n`]*)"
    found = re.findall(start, text.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


def test_every_command_that_the_page_and_the_manifests_give_is_one_that_raffed_takes() -> None:
    from typer.main import get_command

    from raffed.cli.app import app

    group: Any = get_command(app)
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", (CLUSTER / "README.md").read_text(), re.DOTALL))
    found = commands(blocks) + commands((CLUSTER / "kuberay" / "rayjob.yaml").read_text())
    assert len(found) >= 8
    for words in found:
        group.commands[words[0]].make_context(words[0], words[1:])
        if words[0] == "submit" and not any(word.endswith(".toml") for word in words):
            inner = next(i for i, word in enumerate(words) if word in SUBMITTED)
            checked(words[inner], words[inner + 1 :], group)


SCRIPT = ROOT / "cluster" / "slurm" / "raffed.sbatch"
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do
    [[ "$1" == --nodelist=* ]] && export SLURMD_NODENAME="${1#--nodelist=}"
    shift
done
exec "$@"
"""
SCONTROL = """#!/bin/bash
[[ "$1 $2" == "show hostnames" ]] && printf 'node1\\nnode2\\n'
"""
BESIDE = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where pip puts programs, then the system's
SHELLCHECK = shutil.which("shellcheck", path=BESIDE)
JOB = str(900_000 + os.getpid() % 90_000)


@pytest.fixture
def allocation(tmp_path: Path) -> dict[str, str]:
    """The environment of a batch script on an allocation of two nodes of one core, both of which are this
    machine.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "tokens").mkdir()
    others = ("RAY_", "SLURM", "RAFFED_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    slurm = {"JOB_NODELIST": "node[1-2]", "JOB_ID": JOB, "CPUS_PER_TASK": "1", "GPUS_ON_NODE": "0"}
    mine = {"PATH": f"{tools}:{BESIDE}", "RAFFED_TOKENS": str(tmp_path / "tokens"), "PYTHONPATH": str(ROOT)}
    return {**kept, **mine, **{f"SLURM_{name}": value for name, value in slurm.items()}}


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed (make extras)")
def test_shellcheck_warns_of_nothing() -> None:
    done = subprocess.run(
        [str(SHELLCHECK), "--severity=warning", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""


def test_without_a_command_it_says_how_it_is_used(allocation: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", SCRIPT], env=allocation, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sbatch raffed.sbatch")
    assert list((tmp_path / "tokens").iterdir()) == []


def processes_of_the_job() -> list[psutil.Process]:
    """What still runs with the folders of this job."""
    every = psutil.process_iter(["cmdline"])
    return [one for one in every if f"/rf{JOB}-" in " ".join(one.info["cmdline"] or ())]


@pytest.mark.slow
def test_the_end_of_the_time_limit_stops_a_run_on_both_nodes_resumably_and_nothing_is_left(
    allocation: dict[str, str], tmp_path: Path
) -> None:
    """Slurm sends SIGTERM to the batch script alone (--signal=B:TERM)."""
    out, tokens, log = tmp_path / "run", tmp_path / "tokens", tmp_path / "log"
    command = ["bash", SCRIPT, "run", "--split", "iid:6", "--rounds", "100000", "--out", str(out)]
    with log.open("wb") as sink:
        batch = subprocess.Popen(command, env=allocation, stdout=sink, stderr=sink, start_new_session=True)
    try:
        until = time.monotonic() + 240
        while not (out / "metrics").is_dir() or not list((out / "checkpoints").glob("round-*")):
            assert time.monotonic() < until, log.read_text()[-3000:]
            assert batch.poll() is None, log.read_text()[-3000:]
            time.sleep(0.2)
        (token_file,) = tokens.glob(".raffed-token.*/token")
        assert token_file.stat().st_mode & 0o077 == 0
        token = token_file.read_text()
        assert len(token) == 64
        batch.send_signal(signal.SIGTERM)
        assert batch.wait(60) == 143
    finally:
        if batch.poll() is None:
            os.killpg(batch.pid, signal.SIGKILL)
    about = json.loads((out / "run.json").read_text())
    assert about["state"] == "stopped"
    assert len({place["node"] for place in about["placement"]["places"]}) == 2
    assert not list(Path("/tmp").glob(f"rf{JOB}-*"))
    assert token not in log.read_text()
    assert list(tokens.iterdir()) == []
    assert processes_of_the_job() == []
