"""Make a RunConfig from what was typed: a TOML file, flags over it; and hints for what is misspelt."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import date, time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from raffed.cli.messages import few
from raffed.cli.options import FLAGS, BriefCommand, Flags, Typed
from raffed.config.portable import set_where_possible
from raffed.config.run import RunConfig
from raffed.config.sections import Runtime
from raffed.config.toml import parse_toml, read_toml, schema_text
from raffed.config.validation import Json, table_of
from raffed.core.own_functions import loss_function, metric_function, names_in
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import METHODS, method_info, method_name
from raffed.methods.authors import AuthorsMethod
from raffed.models import model_name

if TYPE_CHECKING:
    from typer._click.core import Context

# What was probably meant, where something was typed in another place than it belongs.
#
# Only looked at after a mistake, because it reads the arguments of methods from their source.


def _arguments(method: str) -> set[str]:
    return {argument.name for argument in method_info(method).described().arguments}


class Hinting(BriefCommand):
    """A command that says where an argument of a method belongs, if it is typed as an option."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the words of a command.

        Raises:
            UsageError: An option does not exist, but a method has an argument of its name.
        """
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", "")
            if hint := option_hint(str(option), words):
                raise UsageError(hint) from error
            raise


def option_hint(option: str, words: Sequence[str]) -> str:
    """Return what was meant by an option that does not exist; "" if nothing is known.

    Args:
        option: Such as --alpha.
        words: The words of the command, which may name methods.
    """
    name = option.lstrip("-").replace("-", "_")
    if not option.startswith("--") or not name:
        return ""
    typed = [after for before, after in pairwise(words) if before == "--method"]
    typed += [word.partition("=")[2] for word in words if word.startswith("--method=")]
    known = [method.lower() for method in typed if method.lower() in METHODS]
    takers = [method for method in (known if typed else METHODS) if name in _arguments(method)]
    if takers:
        choose = "" if typed else f"--method {takers[0]} "
        taken = f"{name} is an argument of {few(takers)}"
        return f"{option} is not an option; {taken}: give {choose}--set {name}=VALUE"
    return ""


Tables: TypeAlias = dict[str, Json]
OF = {"args": "method", "model.args": "model.name"}
# Field that NAME=VALUE sets, and that a flag adds to → the field with the name of what has these arguments
OWNERS = {
    flag.field: OF.get(flag.field, flag.field.removesuffix("_args"))
    for flag in FLAGS
    if flag.field.endswith("args")
}
ACTORS = ("actors", "clients_per_actor")  # two ways to set the number of actors


def read_config(file: Path | None, flags: Flags) -> RunConfig:
    """Return the run that a file and flags ask for."""
    tables = read_local(file) if file else {}
    tables.pop("seeds", None)  # how often a run is repeated is no part of it (raffed/cli/execution.py)
    tables = merged(tables, flags)
    return config_of(tables, flags)


def config_of(tables: Tables, flags: Flags) -> RunConfig:
    """Return the run of these tables, into which the flags are merged."""
    canonical(tables)
    check_used(tables, flags)
    return RunConfig.from_dict(tables)


def read_local(file: Path) -> Tables:
    """Return the tables of a TOML file.

    The file may name no Ray cluster other than this machine's own, because joining a cluster runs what it
    sends.
    """
    tables = read_toml(file)
    if table_of(tables.get("runtime")).get("author_python"):
        raise UsageError(f"{file}: a file names no interpreter; give --author-python in the command")
    if table_of(tables.get("runtime")).get("address", "auto") != "auto":
        raise UsageError(
            f'{file}: runtime.address in a file may be "auto" only; give another cluster as --address'
        )
    return tables


def merged(tables: Tables, flags: Flags) -> Tables:
    """Return `tables` with the flags put over them. Arguments are merged name by name.

    Arguments in a file belong to the method or model named there, and a flag with another name drops them. A
    flag for the number of actors drops the file's other setting for that number.
    """
    tables = copy.deepcopy(tables)
    for args, owner in OWNERS.items():
        section, _, name = owner.rpartition(".")
        owned = table_of(tables.get(section)) if section else tables
        if _renamed(flags.get(owner), owned, name):
            owned.pop(args.rpartition(".")[2], None)
    placed_by = [name for name in ACTORS if flags.get(f"runtime.{name}")]
    for name in ACTORS:
        if placed_by and name not in placed_by:
            table_of(tables.get("runtime")).pop(name, None)
    for field, typed in flags.items():
        if field == "faults":
            plan = read_toml(Path(str(typed)))
            tables[field] = table_of(plan["faults"]) if "faults" in plan else plan
            continue
        section, _, name = field.rpartition(".")
        table = tables.setdefault(section, {}) if section else tables
        if not isinstance(table, dict):
            raise UsageError(f"[{section}] is {table!r}, but must be a table")
        if field in OWNERS:
            table[name] = {**table_of(table.get(name)), **assignments(typed)}
        else:
            table[name] = list(typed) if isinstance(typed, list) else typed
    return tables


def placed(runtime: Runtime, flags: Flags) -> Runtime:
    """Return `runtime` with the flags put over it."""
    typed = {field: value for field, value in flags.items() if field.startswith("runtime.")}
    tables = merged({"runtime": asdict(runtime)}, typed)
    check_used(tables, flags)
    return RunConfig.from_dict(tables).runtime


def check_used(tables: Tables, flags: Flags) -> None:
    """Refuse settings that another setting makes ineffective.

    Two are allowed: `--execution serial` together with the actors in a file, and an address, which every
    command of a job contains.
    """
    runtime, privacy = table_of(tables.get("runtime")), table_of(tables.get("privacy"))
    for name in ACTORS:
        typed = f"runtime.{name}" in flags or "runtime.execution" not in flags
        if runtime.get("execution") == "serial" and runtime.get(name) and typed:
            raise UsageError(
                f"runtime.{name} = {runtime[name]} with runtime.execution = 'serial', which is one "
                "process without actors; give --execution ray, or leave out one of the two"
            )
    for name in ("noise_at", "delta"):
        if name in privacy and "noise" not in privacy:
            raise UsageError(
                f"privacy.{name} = {privacy[name]!r} has no effect without privacy.noise; also give --noise"
            )


def _renamed(flag: Typed, table: Tables, key: str) -> bool:
    """Return whether a flag names another method, loss, model or split than the table, ignoring case."""
    return flag is not None and key in table and str(flag).lower() != str(table[key]).lower()


def canonical(tables: Tables) -> None:
    """Check the names, without importing torch, and give each its canonical spelling.

    So equal configurations have the same identity, however they are spelt.
    """
    set_where_possible(tables.get("numerics"))  # before anything loads NumPy
    if isinstance(method := tables.get("method"), str):
        tables["method"] = method_name(method)
        info = method_info(method_name(method))
        if isinstance(info, AuthorsMethod) and "name" not in table_of(tables.get("model")):
            named = info.default_model(table_of(tables.get("args")))
            tables["model"] = {**table_of(tables.get("model")), "name": named}
    data, model = table_of(tables.get("data")), table_of(tables.get("model"))
    if isinstance(dataset := data.get("dataset"), str):
        from raffed.data.own_data import checked_name  # imported late because it loads NumPy

        data["dataset"] = checked_name(dataset)
    if isinstance(split := data.get("split"), str):
        from raffed.data.splits import split_name  # late, because it loads NumPy

        data["split"] = split_name(split)
    if isinstance(loss := tables.get("loss"), str) and loss:
        tables["loss"] = loss_function(loss.strip()).name
    federation = table_of(tables.get("federation"))
    if isinstance(listed := federation.get("metrics"), str | list):
        texts = names_in(listed if isinstance(listed, str) else ",".join(map(str, listed)))
        federation["metrics"] = ",".join(metric_function(text).name for text in texts)
    if isinstance(name := model.get("name"), str):
        model["name"] = model_name(name)


def assignments(texts: Typed) -> Tables:
    """Parse what was typed for an option: ["mu=0.1", "mode=counts"] → {"mu": 0.1, "mode": "counts"}."""
    values: Tables = {}
    for text in texts if isinstance(texts, list) else ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{text!r} is not NAME=VALUE, as in --set mu1=0.1")
        if name.strip() in values:
            raise UsageError(f"{name.strip()} is given twice")
        values[name.strip()] = read_value(value)
    return values


def read_value(text: str) -> Json:
    """Return a TOML value, or Python's True, False, .5 and 5.; any other text stays a text."""
    text = text.strip()
    if text in ("True", "False"):
        return text == "True"
    if re.fullmatch(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    try:
        read = parse_toml(f"value = {text}", "value")
    except UsageError:
        return text
    value = read.get("value")
    return text if len(read) > 1 or isinstance(value, (dict, date, time)) else value


def args_for(methods: Iterable[str], given: Tables) -> dict[str, Tables]:
    """Return method → its part of the arguments.

    `fedmr.mu1` is for one method, and `alpha` for every method that takes it.
    """
    accepted = {name: _arguments(name) for name in methods}
    parts: dict[str, Tables] = {name: {} for name in accepted}
    for key, value in given.items():
        owner, dot, argument = key.rpartition(".")
        takers = [method_name(owner)] if dot else [name for name, known in accepted.items() if key in known]
        if dot and takers[0] not in accepted:
            raise UsageError(
                f"--set {key}: {takers[0]} is not one of the compared methods ({', '.join(accepted)})"
            )
        if not takers:
            raise UnknownNameError("argument of the methods compared", key, set().union(*accepted.values()))
        for name in takers:
            parts[name][argument] = value
    return parts


def schema() -> None:
    """Print the JSON schema of a configuration, by which editors complete and check a file."""
    print(schema_text(), end="")
