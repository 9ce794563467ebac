"""The pages of docs/reference, made from the code: `python -m tests.docs.reference` writes them.

docs/methods.md is made by tests/docs/methods.py. The Python pages name what mkdocstrings fills in when
the site is built.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import raffed
from raffed.cli.options import FLAGS
from raffed.config.run import RunConfig
from raffed.config.sections import SECTIONS
from raffed.config.source import described
from raffed.config.training import OPTIMIZERS
from raffed.config.validation import Declaration, declarations
from raffed.data.catalogue import ALIASES, DATASETS
from raffed.data.importers.reference import KINDS
from raffed.data.splits import SPLITS
from raffed.models import MODELS
from raffed.results.metrics import METRICS
from tests.docs.command_line import command_line
from tests.docs.methods import arguments

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
MADE = "`python -m tests.docs.reference` made this page from the code.\n"


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown. A vertical bar in a cell is escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in line)} |\n" for line in lines)


def configuration() -> str:
    """Return the page of the keys of a run."""
    head = f"""# Configuration keys

{MADE}
A run is described by these keys. In a TOML file, those of the first table stand before any section, and
the others below `[data]`, `[model]` and so on. In Python they are the fields of `raffed.RunConfig`,
`raffed.Data`, `raffed.Model` and so on. Most of them also have an option of the command line. The values
are checked before any work starts; an unknown key is refused, and the message names the nearest known one.
"""
    own = [one for one in declarations(RunConfig).values() if one.name not in SECTIONS]
    parts = [head, "## Before any section\n", _keys("", own)]
    for name, kind in SECTIONS.items():
        doc = declarations(RunConfig)[name].doc
        parts += [f"## [{name}]\n", f"{doc}\n", _keys(name, declarations(kind).values())]
    return "\n".join(parts) + _optimizers()


def _keys(section: str, known: Iterable[Declaration]) -> str:
    flags = {flag.field: flag.flag.split("/")[0] for flag in FLAGS}
    rows = []
    for one in known:
        flag = flags.get(f"{section}.{one.name}" if section else one.name, "")
        allowed = " ".join(filter(None, (one.shown_kind, str(one.range or ""))))
        shown = f"`{one.shown_default}`" if one.shown_default else ""
        rows.append((f"`{one.name}`", shown, allowed, f"`{flag}`" if flag else "", one.doc))
    return markdown_table(("key", "default", "values", "option", "meaning"), rows)


def _optimizers() -> str:
    """Return the arguments of optimisers, which `local.optimizer_args` holds."""
    parts = ["\n## Arguments of optimisers\n\n`local.optimizer_args` holds these.\n"]
    for name, kind in OPTIMIZERS.items():
        parts.append(f"\n### {name}\n\n{arguments(list(declarations(kind).values()))}")
    return "".join(parts)


def metrics() -> str:
    """Return the page of everything that a run can measure."""
    head = f"""# Metrics

{MADE}
Every row of a run's Parquet files is one of these metrics. [What a run leaves](../metrics.md) says how to
ask for more of them, and how to add your own. *n* is the number of samples or clients behind a value.
"""
    rows = []
    for one in sorted(METRICS, key=lambda one: one.place):  # not in the order of imports
        name = f"{one.name}N" if one.numbered else one.name
        cells = (f"`{name}`", one.model, one.split, ", ".join(one.levels), one.unit.name, one.better)
        rows.append((*cells, one.when, f"{one.meaning} (n: {one.n})"))
    titles = ("name", "model", "split", "rows", "unit", "better", "when", "meaning")
    return f"{head}\n{markdown_table(titles, rows)}"


def models() -> str:
    """Return the page of raffed's own networks, with every argument."""
    head = f"""# Models

{MADE}
`--model NAME` chooses one of these networks, and `--model-arg NAME=VALUE` sets an argument. C is the number
of classes. [A model of your own](../own_model.md) says how to bring another one, and
[torchvision's networks](../torchvision-models.md) lists those of torchvision.
"""
    rows = [(f"[`{key}`](#{key})", one.layers, one.source) for key, one in MODELS.items()]
    parts = [head, markdown_table(("name", "layers", "source"), rows)]
    last = described("raffed.models.last_layers", "last_layers").arguments
    parts += ["## Arguments of every network\n", arguments(last)]
    parts.append("Every network also has the argument `head_bias`. Its default depends on the network.\n")
    for key, one in MODELS.items():
        found = one.described
        shapes = ", ".join("×".join(map(str, shape)) for shape in one.in_shapes)
        doc = " ".join(found.doc.partition("Layers:")[0].split())
        source = " ".join(one.said("Source")).removesuffix(".")
        parts += [f"## {key}\n", f"{doc}\n", f"Source: {source}.\n", f"Inputs in the papers: {shapes}.\n"]
        parts.append(arguments([each for each in found.arguments if each.name not in {x.name for x in last}]))
    return "\n".join(parts)


def splits() -> str:
    """Return the page of the ways to divide data, with their parameters."""
    head = f"""# Splits

{MADE}
`--split` divides the data among clients. `raffed splits p10c2 --draw out.png` draws a division. The
parameters are typed in the order in which they stand here, separated by colons; those with a default may
be left out. *Local test* is the share of a client's samples that is held out if `--local-test` is not
given. *Style* is what `--transform auto` means. [A split of your own](../own_split.md) is a function in a
file.
"""
    rows = []
    for one in SPLITS.values():
        test = "made by the split" if one.brings_tests else f"{one.default_local_test:g}"
        written = f"`{one.syntax}`".replace("[", "` `[", 1)  # a narrow column breaks there
        rows.append((f"[{one.name}](#{one.name.lower()})", written, one.meaning, test, one.style))
    parts = [head, markdown_table(("split", "write", "meaning", "local test", "style"), rows)]
    for one in SPLITS.values():
        doc = " ".join((one.__doc__ or "").partition("\n\n")[0].split())
        parts += [f"## {one.name}\n", f"{doc}\n", arguments(list(declarations(one).values()))]
    return "\n".join(parts)


def datasets() -> str:
    """Return the page of the data sets and of the kinds of data of one's own."""
    head = f"""# Data sets

{MADE}
`--dataset NAME` chooses one. `digits` is built in. The files of the others are looked for below
`--data-root` or `RAFFED_DATA`; `--download` fetches those that torchvision can fetch. A file whose md5 is
published is refused if it has another one. `raffed doctor` says which data sets can be used on this machine.
"""
    rows, files = [], []
    for key, info in DATASETS.items():
        also = ", ".join(f"`{alias}`" for alias, of in ALIASES.items() if of == key)
        sizes = [f"{n:,}" if n else "as found" for n in (info.num_train, info.num_test)]
        shape = "×".join(map(str, info.shape))
        rows.append((f"`{key}`", info.title, also, str(info.num_classes), shape, *sizes, info.origin))
        where = ", ".join(f"`{file.path}`" for file in info.files) or (
            f"`{info.folder}`" if info.folder else ""
        )
        files.append((f"`{key}`", where or "built in"))
    titles = ("name", "data set", "also", "classes", "input", "training", "test", "origin")
    parts = [head, markdown_table(titles, rows), "## Files\n"]
    parts.append(markdown_table(("name", "files below the data root"), files))
    parts.append("## Data of your own\n\n[Data of your own](../own_data.md) explains these.\n")
    own = [
        (f"`{one.example}`", one.meaning, ", ".join(f"`{name}`" for name in one.options))
        for one in KINDS.values()
    ]
    parts.append(markdown_table(("--dataset", "what it reads", "options"), own))
    return "\n".join(parts)


# Package below raffed → title of its page
PYTHON = {
    "api": "Commands as functions",
    "runs": "Run, resume, and what comes out",
    "config": "Describe a run",
    "core": "Parts of a method",
    "methods": "Declare a method",
    "data": "Data and splits",
    "models": "Networks",
    "tables": "Tables",
    "analysis": "Rows and reports",
    "attacks": "Attacks on uploads",
    "testing": "Checks for your own tests",
}
# What a table or study that stands beside raffed uses below the public names, as reproductions/ does
BELOW = {
    "A table": """config.search_axis config.validation errors methods models tables.catalogue tables.items
        tables.search tune_spaces""",
    "A study that trains or scores without a run": """config.portable core.aggregation.uploads core.losses
        core.messages core.round core.seeds core.training.network core.training.session core.training.sgd
        core.training.task data.preparation data.splits data.transforms runtime.machine
        runtime.scoring runtime.setup runtime.setup_model""",
    "Records that are packed or read again": """own.gate results.files results.rows results.runfile
        results.storage results.text results.writer""",
}
OF_PACKAGES = {  # package → its module → the names that are shown; analysis/ is raffed.analysis
    "analysis": {"analysis": sorted(import_module("raffed.analysis").__all__, key=str.lower)},
    "attacks": {"raffed.attacks.protocol": ["leakage"]},
    "testing": {"raffed.testing": sorted(import_module("raffed.testing").__all__, key=str.lower)},
}


SHOWN_AS = {"analysis": "raffed.analysis", "attacks": "raffed.attacks.protocol", "testing": "raffed.testing"}


def names_of(package: str) -> dict[str, list[str]]:
    """Return the modules of a package that have public names → these names."""
    homes: dict[str, list[str]] = {}
    for name, home in raffed._HOMES.items():
        if home.split(".")[1] == package:
            homes.setdefault(home, []).append(name)
    return homes or OF_PACKAGES[package]


def python_index() -> str:
    """Return the page that says where each public name is."""
    rows = [
        (
            f"[{title}]({package}.md)",
            SHOWN_AS.get(package, "raffed"),
            ", ".join(f"`{name}`" for names in names_of(package).values() for name in names),
        )
        for package, title in PYTHON.items()
    ]
    head = (
        f"# Python\n\n{MADE}\nThere is a page for each package, in the order in which a user meets them.\n\n"
    )
    return head + markdown_table(("page", "import from", "names"), rows)


def python_page(package: str) -> str:
    """Return the page of a package: its modules, each with its purpose and its public names."""
    parts = [f"# {PYTHON[package]}\n\n{MADE}"]
    for home, names in names_of(package).items():
        above = home if package in OF_PACKAGES else "raffed"
        parts += [f"## {home.removeprefix('raffed.')}", purpose_of(SHOWN_AS.get(package, home))]
        parts += [f"::: {above}.{name}" for name in names]
    return "\n\n".join(parts) + "\n"


def modules_page() -> str:
    """Return the page of the modules that tables, studies and packed records use below the public names."""
    parts = [
        f"""# Modules below the public names

{MADE}
The tables, studies and packed records in `reproductions/` use these modules, and yours can use them too. They
may change with every version: [what stays](../../stays.md) promises nothing of them. Their docstrings say
what each function takes and returns.
"""
    ]
    for purpose, names in BELOW.items():
        rows = [(f"`raffed.{name}`", purpose_of(f"raffed.{name}")) for name in names.split()]
        parts += [f"## {purpose}\n", markdown_table(("module", "what it holds"), rows)]
    return "\n".join(parts)


def purpose_of(module: str) -> str:
    """Return the first sentence of a module's docstring."""
    file = Path(str(import_module(module).__file__))
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.partition("\n\n")[0].split())


PAGES = {
    "python/index.md": python_index,
    "python/modules.md": modules_page,
    **{f"python/{package}.md": partial(python_page, package) for package in PYTHON},
    "cli.md": command_line,
    "configuration.md": configuration,
    "metrics.md": metrics,
    "models.md": models,
    "splits.md": splits,
    "datasets.md": datasets,
}


if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
        print(f"wrote {FOLDER / name}")
