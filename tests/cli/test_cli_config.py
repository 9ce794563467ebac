"""From what was typed to a RunConfig."""

from __future__ import annotations

import codecs
import math
from pathlib import Path

import pytest

from raffed.cli.config import args_for, placed, read_config, read_value
from raffed.cli.running import compared, free_folder
from raffed.config.faults import Faults
from raffed.config.sections import Runtime
from raffed.config.toml import read_toml
from raffed.errors import UsageError

TOML = """
method = "fedmr"
seed = 7
[args]
mu1 = 0.5
mu2 = 0.25
[data]
split = "P10C3"
[local]
lr = 1
[model]
name = "mlp"
[model.args]
hidden = [32]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exp.toml"
    path.write_text(TOML)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-3", 0.001), (".5", 0.5), ("5.", 5.0), ("-2", -2), ("False", False), ("[64, 32]", [64, 32])),
        *((text, text) for text in ("paper", "", "a b", "007", "2024-01-01", "1\nb = 2", "{a = 1}")),
    ],
)
def test_values_are_toml_or_a_word(text: str, value: object) -> None:
    found = read_value(text)
    assert (found, type(found)) == (value, type(value))
    assert math.isnan(read_value("nan"))


def test_a_flag_over_a_file_says_how_many_actors_there_are(file: Path) -> None:
    """Either of the two ways; `serial` puts them aside, and a file that contradicts itself is refused."""
    file.write_text(f"{TOML}[runtime]\nclients_per_actor = 1\n")
    assert read_config(file, {}).runtime == Runtime(clients_per_actor=1)
    assert read_config(file, {"runtime.actors": 3}).runtime == Runtime(actors=3)
    both = {"runtime.actors": 3, "runtime.clients_per_actor": 4}
    assert read_config(file, both).runtime == Runtime(actors=3, clients_per_actor=4)
    assert read_config(file, {"runtime.execution": "serial"}).runtime == Runtime(
        execution="serial", clients_per_actor=1
    )
    assert placed(Runtime(actors=3), {"runtime.actors": 0}) == Runtime()
    with pytest.raises(UsageError, match=r"actors = 2 with .* one process"):
        placed(Runtime(execution="serial"), {"runtime.actors": 2})
    file.write_text(f'{TOML}[runtime]\nclients_per_actor = 1\nexecution = "serial"\n')
    with pytest.raises(UsageError, match=r"clients_per_actor = 1 with .* one process"):
        read_config(file, {})


def test_flags_override_the_file_name_by_name_and_arguments_go_with_their_method_and_model(
    file: Path,
) -> None:
    given = {"args": ["mu2=1"], "seed": 3, "local.momentum": 0.5, "runtime.execution": "serial"}
    config = read_config(file, given)
    assert (config.method, config.seed, config.data.split) == ("fedmr", 3, "p10c3")
    assert config.args == {"mu1": 0.5, "mu2": 1}
    assert (config.local.lr, config.local.momentum, config.runtime.execution) == (1.0, 0.5, "serial")
    assert config.model.args == {"hidden": [32]}
    other = read_config(file, {"method": "fedavg", "model.name": "resnet8"})
    assert (other.args, other.model.args) == ({}, {})
    assert read_config(file, {"method": "FedMR"}).args == {"mu1": 0.5, "mu2": 0.25}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[locl]\nlr = 1", "local"),
        ("[local]\nlrr = 1", "nearest: lr"),
        ("[local]\nlr = 'a'", "local.lr = 'a'"),
        ("lr =\nx = 1", "line 1"),
        ("rounds = 3", "'rounds' in no section: it belongs in [federation]"),
        ("[data]\nlr = 1", "'lr' in [data]: it belongs in [local]"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_config(path, {})
    assert said in str(error.value)


def test_a_toml_file_is_read_with_a_byte_order_mark_and_as_utf_8_only(tmp_path: Path) -> None:
    """Editors under Windows write the mark."""
    path = tmp_path / "run.toml"
    path.write_bytes(codecs.BOM_UTF8 + b'method = "fedavg"\r\n[data]\r\nsplit = "p4c3"\r\n')
    assert read_toml(path) == {"method": "fedavg", "data": {"split": "p4c3"}}
    for content in ('method = "fedavg"'.encode("utf-16"), b'a = "\xe9"', b"a = \x00"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"run\.toml: not (a )?TOML"):
            read_toml(path)


def test_the_default_folder_is_new_and_says_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = read_config(None, {"method": "map", "data.split": "dirichlet:10:0.5", "seed": 3})
    assert free_folder(config) == Path("runs/map-digits-dirichlet-10-0.5-s3")
    free_folder(config).mkdir(parents=True)
    assert free_folder(config) == Path("runs/map-digits-dirichlet-10-0.5-s3-2")
    strange = read_config(None, {"data.split": "file:/some where/../p ä q.npz"})
    assert free_folder(strange) == Path("runs/fedavg-digits-file-p-q-s0")


def test_compared_methods_get_the_arguments_they_take() -> None:
    given = {"alpha": 0.3, "fedmr.mu1": 0.5, "mu": 0.2}
    parts = args_for(["fedavg", "fedrs", "fedmr", "map"], given)
    both = {"alpha": 0.3, "mu": 0.2}
    assert parts == {"fedavg": {}, "fedrs": {"alpha": 0.3}, "fedmr": {"mu1": 0.5}, "map": both}


@pytest.mark.parametrize("key", ["alhpa", "scaffold.server_lr", "fedxx.mu"])
def test_an_argument_that_no_compared_method_takes_is_refused(key: str) -> None:
    with pytest.raises(UsageError):
        args_for(["fedavg", "fedrs"], {key: 1})


def test_compared_runs_differ_in_the_method_alone(file: Path) -> None:
    found = compared(["fedavg", "FedMR"], file, {"args": ["fedmr.mu1=2"], "seed": 1})
    assert list(found) == ["fedavg", "fedmr"]
    assert found["fedmr"].args == {"mu1": 2, "mu2": 0.25}
    assert found["fedavg"].args == {}
    assert found["fedavg"].data == found["fedmr"].data
    assert found["fedavg"].model.args == {"hidden": [32]}


def test_a_plan_of_faults_is_read_from_its_own_file_with_or_without_the_table_s_name(tmp_path: Path) -> None:
    bare, named = tmp_path / "bare.toml", tmp_path / "named.toml"
    bare.write_text('drop = 0.1\nat = "late 3@2"\n')
    named.write_text('[faults]\ndrop = 0.1\nat = "late 3@2"\n')
    plans = [read_config(None, {"faults": str(path)}).faults for path in (bare, named)]
    assert plans == [Faults(drop=0.1, at="late 3@2")] * 2
    bare.write_text("dorp = 0.1\n")
    with pytest.raises(UsageError, match="nearest: drop"):
        read_config(None, {"faults": str(bare)})


def test_one_method_may_be_compared_with_several_settings() -> None:
    """They take precedence over --set, and name the runs; a repetition would be one run under two names."""
    found = compared(["fedavg", "FedProx,mu=0.1", "fedprox, mu=1.0"], None, {"args": ["mu=5.0"]})
    assert {label: (one.method, one.args) for label, one in found.items()} == {
        "fedavg": ("fedavg", {}),
        "fedprox,mu=0.1": ("fedprox", {"mu": 0.1}),
        "fedprox,mu=1.0": ("fedprox", {"mu": 1.0}),
    }
    for wrong, said in (
        (["fedprox", "fedprox"], "fedprox is given twice"),
        (["fedprox,mu=1.0", "fedprox,mu=1.0"], "fedprox,mu=1.0 is given twice"),
        (["fedprox,nu=1.0"], "nearest: mu"),
        (["fedprox,mu=1.0,mu=2.0"], "mu is given twice"),
    ):
        with pytest.raises(UsageError, match=said):
            compared(wrong, None, {})
