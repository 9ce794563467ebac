"""Splits, data sets, losses and metrics of an installed package have short names, and are listed with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raffed.cli.submitting import own_references
from raffed.core.measures.own_metric import own_metric
from raffed.core.training.own_loss import criterion_of
from raffed.data.own_data import checked_name, is_own, load_own
from raffed.data.splits import parse_split, split_name
from raffed.errors import UsageError
from raffed.own.gate import entry_points
from raffed.results import read_run
from tests.cli.conftest import QUICK, Cli
from tests.own.own_code import write
from tests.own.test_own_methods import FakePackage

ENTRY_POINTS = """
[raffed.splits]
halves = mylab:halves
iid = mylab:halves
[raffed.datasets]
wards = mylab:mine
digits = mylab:mine
[raffed.losses]
focal = mylab:focal
[raffed.metrics]
right = mylab:right
[raffed.models]
wardnet = mylab:net
"""


@pytest.fixture(autouse=True)
def installed(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write(lab)
    monkeypatch.setenv("RAFFED_CACHE", str(lab / "cache"))
    package = FakePackage(lab)
    (lab / "mylab-0.1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    entry_points.cache_clear()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, package])
    yield lab
    entry_points.cache_clear()


def test_short_names_stand_for_the_package_s_code_and_take_none_of_raffed_s() -> None:
    assert parse_split("Halves", {"clients": 3}).client_count == 3
    assert split_name("HALVES") == "halves"
    assert type(parse_split("iid:3")).__name__ == "Iid"
    assert criterion_of("focal", {}).name == "focal"
    assert own_metric("right").unit == "fraction"
    assert checked_name("Wards") == "wards"
    assert len(load_own("wards").dataset.y) == 48
    assert not is_own("digits")
    with pytest.raises(UsageError, match="wards"):
        checked_name("ward")


@pytest.mark.parametrize(
    ("listing", "name"),
    [("splits", "halves"), ("datasets", "wards"), ("models", "wardnet"), ("metrics", "right")],
)
def test_a_listing_names_the_package(cli: Cli, listing: str, name: str) -> None:
    lines = cli(listing).out.splitlines()
    assert any(name in line and "mylab" in line and "mylab 0.1" in line for line in lines)


def test_a_run_by_short_names_records_reference_and_package(installed: Path, cli: Cli) -> None:
    said = ["run", "--dataset", "wards", "--loss", "focal", "--metric", "right", *QUICK, "--split", "halves"]
    assert cli(*said, "--rounds", 1, "--quiet", "--out", "run").code == 0
    about = read_run(installed / "run")
    assert {one["role"]: one["reference"] for one in about["code"]} == {
        "split": "mylab:halves",
        "loss": "mylab:focal",
        "metric right": "mylab:right",
    }
    assert cli("verify", "run").code == 0


def test_the_code_that_a_file_names_travels_with_a_job(installed: Path) -> None:
    (installed / "run.toml").write_text(
        'method = "./prox.py:myprox"\nloss = "./mylab.py:focal"\n[data]\ndataset = "./mylab.py:mine"\n'
        'split = "./mylab.py:halves"\n[model]\nname = "./net.py:Net"\n[federation]\n'
        'metrics = ["./mylab.py:right", "mylab:nll"]\n',
        encoding="utf-8",
    )
    words = ["run", "run.toml", "--metric", "./mylab.py:errors,./mylab.py:nll"]
    assert set(own_references(words, ["run.toml"])) == {
        "./mylab.py:errors",
        "./mylab.py:nll",
        "./prox.py:myprox",
        "./mylab.py:focal",
        "./net.py:Net",
        "./mylab.py:mine",
        "./mylab.py:halves",
        "./mylab.py:right",
        "mylab:nll",
    }
