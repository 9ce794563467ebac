"""The conditions of a run: everything that must be equal for two experiments to be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from .experiment import experiment
from .files import JsonObject
from .groups import Group
from .load import Runs, flatten, section
from .origins import hashes_of_data

# These decide what is measured, not what is trained.
_MEASURED = {
    "federation.survey",
    "federation.measures",
    "federation.eval_every",
    "federation.strength_every",
}
# These decide which rounds are evaluated. The best round, and means over rounds, depend on them.
EVALUATED = ("federation.eval_every", "federation.survey")
# These change how sums are rounded, as a GPU or more threads do, and not what is computed.
ROUNDING = frozenset({"numerics.cohort", "numerics.bits", "numerics.convolutions"})
PARTITION_NAMES = {"data.split", "data.local_test"}  # names of what the partition's hash decides
# Data set → styles of preprocessing that give the same images; a test compares with raffed/data/transforms.py
ALIKE = {
    **dict.fromkeys(("digits", "femnist", "femnist-letters"), ("fedmr map map-authors plain",)),
    **dict.fromkeys(("mnist", "fashion-mnist"), ("fedmr plain",)),
    **dict.fromkeys(("cifar10", "cifar100", "cinic10", "svhn"), ("map map-authors",)),
    **dict.fromkeys(("isic2019", "tiny-imagenet"), ("fedmr map map-authors",)),
}


RAFFED = "raffed"


def conditions(runs: Runs, group: Group) -> dict[str, str]:
    """Return everything that must be equal, as texts by their names in the configuration."""

    def compute() -> dict[str, str]:
        file = runs.files[group.used[0]]
        config = flatten(experiment(file))
        aside = {"method", *_MEASURED, *PARTITION_NAMES}
        texts = {
            name: str(value)
            for name, value in config.items()
            if name not in aside and not name.startswith(("args.", "method_args."))
        }
        texts["engine"] = engine_of(file)
        if texts["engine"] != RAFFED:  # what an author's engine does not follow is no condition of its runs
            for name in section(section(file, "effective"), "overridden"):
                texts.pop(f"local.{name}", None)
        texts["data.transform"] = _preprocessing(
            section(section(file, "config"), "data"), str(file.get("transform"))
        )
        return texts | hashes_of_data(file)

    setting: dict[str, str] = runs.once(("setting", group.used[0]), compute)
    return setting


def engine_of(file: JsonObject) -> str:
    """Return what executed a run: raffed, or the name and commit of the author's checkout."""
    about, codes = section(file, "engine"), file.get("code") or []
    reference = next((str(code["reference"]) for code in codes if code["role"] == "engine"), "")
    if not about or not reference:
        return RAFFED
    checkout = Path(reference.partition(":")[2].rpartition("#")[0]).name
    return f"{checkout} {str(about.get('commit') or '')[:7]}".strip()


def _preprocessing(data: Mapping[str, object], style: str) -> str:
    """Return how a run preprocessed its images. Styles that give the same images of a data set count as
    one.
    """
    alike = ALIKE.get(str(data.get("dataset")), ())
    return next((styles for styles in alike if style in styles.split()), style)


def tuned_fields(runs: Runs, group: Group) -> frozenset[str]:
    """Return the fields of local training that a sweep chose for each method separately.

    They belong to the method, as its arguments do.
    """

    def compute() -> frozenset[str]:
        folder = Path(str(runs.runs.at[group.used[0], "folder"])).resolve()
        sweeps = (above / "sweep.json" for above in folder.parents[:3])
        return next((_searched(sweep) for sweep in sweeps if sweep.is_file()), frozenset())

    tuned: frozenset[str] = runs.once(("tuned", group.used[0]), compute)
    return tuned


def _searched(path: Path) -> frozenset[str]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return frozenset()
    about = about if isinstance(about, dict) else {}
    methods = section(about, "methods")
    names = [*section(section(about, "request"), "grid")]
    for method in methods:
        searched = section(methods, method)
        names += [*section(searched, "space"), *section(section(searched, "chosen"), "settings")]
    return frozenset(str(name) for name in names if str(name).startswith("local."))
