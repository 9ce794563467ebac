"""A method of one's own is named by reference, by entry point or as an object, and stored as text."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import raffed
from raffed import Numerics
from raffed.config.run import RunConfig
from raffed.core.own_functions import criterion_of, own_metric
from raffed.data.own_data import checked_name, is_own, load_own
from raffed.data.splits import parse_split, split_name
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import METHODS, build_method, method_info, method_name
from raffed.own.gate import entry_points
from raffed.own.resolve import load
from raffed.results.runfile import read_run
from raffed.runs.run import RunResult
from raffed.runtime.setup import prepare_run
from tests.cli.conftest import QUICK, Cli
from tests.laws.test_selected_runs import config, took_part
from tests.own.own_code import write


def test_a_function_in_a_configuration_is_stored_as_its_reference(lab: Path) -> None:
    run = RunConfig(method=load("./prox.py:myprox"))
    assert run.method == "./prox.py:myprox"
    assert RunConfig.from_dict(run.as_dict()) == run
    assert build_method(run.method, {"mu": 0.5}).terms[0].mu == 0.5
    assert build_method("./prox.py:plain", {"mu": 2.0}).terms[0].mu == 2.0  # which has no decorator
    with pytest.raises(UsageError, match=r"lambda.*def"):
        RunConfig(method=lambda: None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./prox.py", "write ./file.py:NAME"),
        ("./prox.py:NUMBER", "not known to make a method"),
        ("os:system", "not known to make a method"),
    ],
)
def test_what_is_no_method_is_refused_in_a_line(lab: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as found:
        build_method(method_name(name))
    assert "\n" not in str(found.value)


def test_a_missing_or_wrong_argument_is_refused_by_its_name(lab: Path) -> None:
    for args, words in (({"mu": 11.0}, "outside"), ({"mu": "a"}, "a float"), ({"nu": 1.0}, "of myprox")):
        with pytest.raises(UsageError, match=words):
            build_method("./prox.py:myprox", args)
    (lab / "needs.py").write_text("def own(mu):\n    return 3\n", encoding="utf-8")
    with pytest.raises(UsageError, match="needs its argument mu"):
        build_method("./needs.py:own")
    with pytest.raises(UsageError, match=r"returned a int; it must return a raffed\.Method"):
        build_method("./needs.py:own", {"mu": 1})


class FakePackage(importlib.metadata.DistributionFinder):
    """An installed package "mylab 0.1" with an entry point `myprox`."""

    def __init__(self, folder: Path) -> None:
        self._at = folder / "mylab-0.1.dist-info"
        self._at.mkdir()
        (self._at / "METADATA").write_text("Name: mylab\nVersion: 0.1\n", encoding="utf-8")
        (self._at / "entry_points.txt").write_text(
            "[raffed.methods]\nmyprox = prox:myprox\nfedavg = prox:myprox\n", encoding="utf-8"
        )

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):  # noqa: B008
        return [importlib.metadata.PathDistribution(self._at)]

    def find_spec(self, *_: object) -> None:
        return None


def test_an_entry_point_is_a_short_name(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points.cache_clear()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, FakePackage(lab)])
    info = method_info(method_name("MyProx"))
    assert (info.name, info.reference, info.package) == ("myprox", "prox:myprox", "mylab 0.1")
    assert build_method("myprox").name == "MyProx"
    assert method_info("fedavg") is METHODS["fedavg"]
    with pytest.raises(UnknownNameError, match="nearest: myprox"):
        method_name("myproxx")
    assert any("myprox" in line and "mylab 0.1" in line for line in cli("methods").out.splitlines())
    entry_points.cache_clear()


@pytest.mark.parametrize("typed", ["flag", "file"])
def test_a_run_takes_a_reference_from_its_words_and_a_file(lab: Path, cli: Cli, typed: str) -> None:
    (lab / "a.toml").write_text('method = "./prox.py:myprox"\n[args]\nmu = 0.5\n', encoding="utf-8")
    asked = {"flag": "run --method ./prox.py:myprox --set mu=0.5", "file": "run a.toml"}[typed]
    done = cli(asked, "--rounds", 1, "--quiet", *QUICK)
    assert (done.code, done.err) == (0, "")
    assert [path.name for path in (lab / "runs").iterdir()] == ["prox.py-myprox-digits-p4c5-s0"]


# A fault in a method, and a rule that chooses the participants

FILE = """
from raffed import Method, Term
class Constant(Term):
    def loss(self, f, k):
        return k.w0.sq_norm()
class Late(Term):
    def loss(self, f, k):
        return f.logits.square().mean() if k.round else f.logits.new_zeros(())
def constant() -> Method: return Method("Constant", terms=(Constant(),))
def late() -> Method: return Method("Late", terms=(Late(),))
"""


@pytest.fixture
def faults(lab: Path) -> Path:
    (lab / "faults.py").write_text(FILE.lstrip(), encoding="utf-8")
    return lab


@pytest.mark.parametrize(("name", "warned"), [("constant", 1), ("late", 0)])
def test_a_run_warns_of_a_term_without_gradient(faults: Path, cli: Cli, name: str, warned: int) -> None:
    done = cli("run", "--method", f"./faults.py:{name}", *QUICK, "--rounds", "2", "--out", "a")
    assert done.code == 0
    assert (done.out + done.err).count("faults.py:3: Constant has had no gradient at any client") == warned


OWN = "def last(round, sizes, count):\n    return range(len(sizes) - count, len(sizes))\n"
LOSSY = (
    "def easiest(sizes, count, losses):\n"
    "    found = losses(range(len(sizes)))\n"
    "    return sorted(range(len(sizes)), key=lambda c: found[c])[:count]\n"
)


def test_a_rule_of_one_s_own_is_found_by_reference(tmp_path: Path, lab: Path) -> None:
    (lab / "rules.py").write_text(OWN + LOSSY)
    run = config("./rules.py:last", rounds=2)
    result = raffed.run(run, tmp_path / "run")
    assert took_part(result) == [[7, 8, 9], [7, 8, 9]]
    easiest = raffed.run(config("./rules.py:easiest", rounds=2))
    assert [len(one) for one in took_part(easiest)] == [3, 3]


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


@pytest.fixture
def installed(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write(lab)
    monkeypatch.setenv("RAFFED_CACHE", str(lab / "cache"))
    package = FakePackage(lab)
    (lab / "mylab-0.1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    entry_points.cache_clear()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, package])
    yield lab
    entry_points.cache_clear()


@pytest.mark.usefixtures("installed")
def test_short_names_stand_for_the_package_s_code_and_take_none_of_raffed_s() -> None:
    assert parse_split("Halves", {"clients": 3}).client_count == 3
    assert split_name("HALVES") == "halves"
    assert type(parse_split("iid:3")).__name__ == "Iid"
    assert criterion_of("focal", {}).name == "focal"
    assert own_metric("right").unit == "fraction"
    assert checked_name("Wards") == "wards"
    assert len(load_own("wards")[0].y) == 48
    assert not is_own("digits")
    with pytest.raises(UsageError, match="wards"):
        checked_name("ward")


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


# Numbers that a method reports of itself

NUMBERS = """
from raffed import Method, Params, Private, Summable, Term
class Sent(Summable):
    n: float
class Seen(Private):
    n: float
    w: Params
class Counts(Term):
    def loss(self, f, k):
        return f.logits.square().mean()
    def finish(self, k):
        return None, Sent(float(k.class_counts.sum()))
    def server_init(self, w, spec):
        return Seen(0.0, w)
    def server_step(self, s, got, spec):
        return Seen(s.n + got.sum.n, s.w)
    def report(self, s):
        return {"seen": s.n, "unknown": float("nan")}
    def report_client(self, k):
        return {"samples": int(k.class_counts.sum())} if k.client else {"samples": float("nan")}
def counts() -> Method: return Method("Counts", terms=(Counts(),))
"""


@pytest.fixture
def numbers(lab: Path) -> Path:
    (lab / "numbers.py").write_text(NUMBERS.lstrip(), encoding="utf-8")
    return lab


COUNTS = RunConfig(
    method="./numbers.py:counts",
    data=raffed.Data(split="p4c5"),
    federation=raffed.Federation(2),
    local=raffed.Local(epochs=1),
    runtime=raffed.Runtime(execution="serial", checkpoint_every=1),
)


def reported(result: RunResult) -> dict[tuple[str, str], list[float]]:
    rows = result.to_pandas().sort_values("round")
    rows = rows[rows["metric"].isin(["seen", "unknown", "samples"])]
    assert rows["client"].isna().all()
    assert set(rows["split"]) == {"train"}
    keys = rows["model"].astype(str), rows["metric"].astype(str)
    return {key: part["value"].tolist() for key, part in rows.groupby(list(keys))}


@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize(
    "changes",
    [
        {"numerics": Numerics(cohort=4)},
        pytest.param({"runtime": raffed.Runtime(execution="ray", actors=2)}, marks=pytest.mark.slow),
    ],
)
def test_what_a_method_reports_is_recorded_each_round_alike_everywhere(changes: dict[str, Any]) -> None:
    """All clients take part, so each round the server sees all samples once more."""
    serial = raffed.run(COUNTS)
    sizes = prepare_run(COUNTS).partition.train
    total, known = sum(map(len, sizes)), [len(one) for one in sizes[1:]]
    found = reported(serial)
    assert found["global", "seen"] == [total, 2 * total]
    assert found["local", "samples"] == [sum(known) / len(known)] * 2  # without the client that says NaN
    assert [value != value for value in found["global", "unknown"]] == [True, True]
    assert str(reported(raffed.run(replace(COUNTS, **changes)))) == str(found)


@pytest.mark.more
def test_it_is_shown_by_events_and_reports_and_stays_after_resume(numbers: Path, cli: Cli) -> None:
    whole = raffed.run(COUNTS, out="whole")
    done: list[dict[str, Any]] = []
    raffed.run(COUNTS, "run", watch=lambda event: done.append(event.as_dict()), stop=lambda: bool(done))
    assert done[0]["global train seen"] == reported(whole)["global", "seen"][0]
    assert done[0]["local train samples"] == reported(whole)["local", "samples"][0]
    again = raffed.resume("run")
    assert again.hashes == whole.hashes
    described = read_run(numbers / "run")["metrics"]
    assert [one["name"] for one in described] == ["seen", "unknown", "samples"]
    assert described[0] == {
        "name": "seen",
        "better": "neither",
        "unit": "number",
        "meaning": "seen, as Counts reports it",
        "reference": "./numbers.py:counts",
    }
    assert cli("verify run").code == 0
    assert cli("report", "run", "--out", "report").code == 0
    summary = (numbers / "report" / "summary.md").read_text("utf-8")
    assert "seen, global" in summary
    assert "samples, local" in summary
