"""The files of cluster/: valid for the tools that read them, locked by default, and holding commands that
exist.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from raffed.cli.submitting import SUBMITTED, checked

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
LAUNCHERS = sorted((CLUSTER / "launcher").glob("*.yaml"))
MANIFESTS = sorted((CLUSTER / "kuberay").glob("*.yaml"))
EVERYTHING = sorted(path for path in CLUSTER.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
SCHEMA = json.loads((Path(__file__).with_name("kuberay_schema.json")).read_text())


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def ray_objects() -> list[tuple[str, dict[str, Any]]]:
    """(name of the file, object) of every object of KubeRay."""
    found = [(path.name, one) for path in MANIFESTS for one in documents(path)]
    return [(name, one) for name, one in found if one["apiVersion"].startswith("ray.io/")]


def schema_of(kind: str) -> dict[str, Any]:
    return {**SCHEMA[kind], "$defs": SCHEMA["$defs"]}


def cluster_of(one: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = one["spec"] if one["kind"] == "RayCluster" else one["spec"]["rayClusterSpec"]
    return spec


def test_there_is_a_file_for_every_kind_of_cluster() -> None:
    assert {path.name for path in LAUNCHERS} == {"local.yaml", "aws.yaml"}
    assert {path.name for path in MANIFESTS} == {"raycluster.yaml", "rayjob.yaml"}
    assert {one["kind"] for _, one in ray_objects()} == {"RayCluster", "RayJob"}
    assert {"README.md", "runtime_env.yaml", "Dockerfile", "raffed.sbatch"} <= {
        path.name for path in EVERYTHING
    }


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.name)
def test_ray_s_own_schema_accepts_a_launcher_file(path: Path) -> None:
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    schema = json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    config = yaml.safe_load(path.read_text())
    jsonschema.validate(config, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**config, "head_nod_type": "head"}, schema)


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.name)
def test_ray_s_own_code_makes_a_launcher_file_whole(path: Path) -> None:
    """fill_default_values and validate_config, as `ray up` calls them before it starts anything."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load(path.read_text())
    config["auth"].pop("ssh_private_key", None)  # a file of the person's own machine
    whole = prepare_config(copy.deepcopy(config))
    validate_config(whole)
    assert whole["head_start_ray_commands"] == config["head_start_ray_commands"]


@pytest.mark.parametrize(("name", "one"), ray_objects(), ids=[name for name, _ in ray_objects()])
def test_kuberay_s_schema_accepts_a_manifest(name: str, one: dict[str, Any]) -> None:
    jsonschema.validate(one, schema_of(one["kind"]))


@pytest.mark.parametrize(
    "place", ["spec.rayClusterSpec.authOption", "spec.entrypont", "spec.rayClusterSpec.headGroupSpec.ports"]
)
def test_the_schema_finds_a_misspelt_field(place: str) -> None:
    (job,) = (copy.deepcopy(one) for _, one in ray_objects() if one["kind"] == "RayJob")
    *way, last = place.split(".")
    part = job
    for name in way:
        part = part[name]
    part[last] = {}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, schema_of("RayJob"))


def test_the_schema_has_the_fields_of_kuberay_1_7() -> None:
    """As many as the tables RayClusterSpec, RayJobSpec, HeadGroupSpec, WorkerGroupSpec and
    AutoscalerOptions of its reference.
    """
    cluster, job = SCHEMA["$defs"]["cluster"]["properties"], SCHEMA["$defs"]["job"]["properties"]
    inner = cluster["headGroupSpec"], cluster["workerGroupSpecs"]["items"], cluster["autoscalerOptions"]
    assert (len(cluster), len(job), *(len(one["properties"]) for one in inner)) == (14, 20, 8, 13, 12)


def test_a_job_that_kuberay_s_operator_refuses_is_found() -> None:
    """A time to live means the cluster's end, which shutdownAfterJobFinishes is for."""
    (job,) = (copy.deepcopy(one) for _, one in ray_objects() if one["kind"] == "RayJob")
    job["spec"]["shutdownAfterJobFinishes"] = False
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, schema_of("RayJob"))


@pytest.mark.parametrize(("name", "one"), ray_objects(), ids=[name for name, _ in ray_objects()])
def test_kuberay_asks_for_a_token_and_opens_no_door(name: str, one: dict[str, Any]) -> None:
    cluster = cluster_of(one)
    assert cluster["authOptions"]["mode"] == "token"
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert cluster["headGroupSpec"]["enableIngress"] is False
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    policies = [found for found in documents(CLUSTER / "kuberay" / name) if found["kind"] == "NetworkPolicy"]
    assert len(policies) == 1


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda path: path.name)
def test_a_launcher_starts_ray_with_a_token_and_a_dashboard_on_localhost(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    head = [line for line in config["head_start_ray_commands"] if "ray start" in line]
    worker = [line for line in config["worker_start_ray_commands"] if "ray start" in line]
    assert len(head) == len(worker) == 1
    assert all("RAY_AUTH_MODE=token" in line for line in head + worker)
    assert "--dashboard-host=127.0.0.1" in head[0]
    assert "~/.ray/auth_token" in config["file_mounts"]


def test_the_slurm_script_starts_ray_with_a_token_and_a_dashboard_on_localhost() -> None:
    text = (CLUSTER / "slurm" / "raffed.sbatch").read_text()
    assert "RAY_AUTH_MODE=token" in text
    assert text.count("--dashboard-host 127.0.0.1") == 1
    # A token in an argument or an environment is seen by others
    assert not re.search(r"RAY_AUTH_TOKEN=", text)


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: path.name)
def test_no_file_holds_a_secret_or_opens_the_dashboard(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"AKIA[0-9A-Z]{12}|-----BEGIN|\b[0-9a-f]{64}\b", text)
    assert not re.search(r"dashboard-host[= ]+0\.0\.0\.0", text)
    assert "RAY_AUTH_MODE=disabled" not in text


def test_the_runtime_environment_is_one_and_keeps_data_and_history_at_home(tmp_path: Path) -> None:
    """By Ray's own packaging: what is left of a folder that holds everything a checkout may hold."""
    from ray.runtime_env import RuntimeEnv

    found = yaml.safe_load((CLUSTER / "runtime_env.yaml").read_text())
    RuntimeEnv(**found)
    home = {
        ".git/config",
        "data/mnist/x.gz",
        "runs/a/run.json",
        "runs/a/checkpoints/round-000001/state.json",
        "x.parquet",
        "deep/er/x.npz",
        ".env",
        "keys/id.pem",
        "w.safetensors",
        ".venv/bin/py",
        "shared/x",
        ".ray/auth_token",
        ".env.local",
        ".netrc",
        "wandb/netrc",
        ".git-credentials",
        ".pypirc",
        ".npmrc",
        ".docker/config.json",
        ".aws/credentials",
        ".azure/x.json",
        ".config/gcloud/x.db",
        ".kube/config",
        "kubeconfig",
        ".ssh/known_hosts",
        "keys/id_ed25519",
        "a.key",
        "a.p12",
        "a.pfx",
        "a.jks",
        "credentials.json",
        "sub/credentials-2.json",
        "service-account-1.json",
        "token.txt",
        "x.token",
        "secrets.yaml",
        "sub/.git/config",
        ".hg/hgrc",
        ".Renviron",
        ".pgpass",
        ".boto",
        ".terraform/x",
        "a.tfstate",
        ".vault-token",
        ".bash_history",
    }
    travels = {
        ".gitignore",
        "raffed/__init__.py",
        "exp.toml",
        "raffed/data/files.py",
        "tune_spaces/map.py",
        "pyproject.toml",
    }
    assert packed(tmp_path, home | travels, found["excludes"]) == travels


def packed(folder: Path, files: set[str], excludes: list[str]) -> set[str]:
    """The files of a folder that Ray's packager sends."""
    import zipfile

    from ray._private.runtime_env.packaging import create_package

    source, target = folder / "source", folder / "package.zip"
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    create_package(str(source), target, include_gitignore=True, excludes=excludes)
    with zipfile.ZipFile(target) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def commands(text: str) -> list[list[str]]:
    """The words of every `raffed …` and `python -m raffed …` line in shell blocks and entry points."""
    joined = text.replace("\\\n", " ")
    lines = re.findall(
        r"(?:^|-- |entrypoint: )(?:[\w./~]*python -m )?raffed (\w[^\n`]*)", joined, re.MULTILINE
    )
    return [shlex.split(line, comments=True) for line in lines]


def test_every_command_that_the_page_and_the_manifests_give_is_one_that_raffed_takes() -> None:
    from typer.main import get_command

    from raffed.cli.app import app

    group: Any = get_command(app)
    checked_here = 0
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", (CLUSTER / "README.md").read_text(), re.DOTALL))
    for words in commands(blocks) + commands((CLUSTER / "kuberay" / "rayjob.yaml").read_text()):
        if words[0] == "submit":
            inner = next(i for i, word in enumerate(words) if word in SUBMITTED)
            group.commands["submit"].make_context("submit", words[1:])
            if not any(word.endswith(".toml") for word in words):
                checked(words[inner], words[inner + 1 :], group)
        else:
            group.commands[words[0]].make_context(words[0], words[1:])
        checked_here += 1
    assert checked_here >= 8
