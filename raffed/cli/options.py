"""The options of commands. Those of a run are made from the fields of RunConfig, one for each."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias, get_args, get_origin

import typer
from typer.core import TyperCommand

from raffed.config.run import RunConfig
from raffed.config.sections import SECTIONS
from raffed.config.training import SCHEDULES
from raffed.config.validation import Declaration, declarations
from raffed.data.catalogue import DATASETS
from raffed.methods import METHODS
from raffed.methods.registry import Variant
from raffed.models import MODELS
from raffed.own.gate import trust_typed

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

Typed: TypeAlias = str | int | float | bool | list[str] | None  # what typer makes of an option
Flags: TypeAlias = Mapping[str, Typed]  # dotted field of RunConfig → value, for options that were typed
Command: TypeAlias = Callable[..., None]
SECTION = re.compile(r"^(\w[\w ]*):$", re.MULTILINE)  # a line such as "Examples:" in a docstring
ENTRY = re.compile(r"^ {4}(\w+)(?: \(([^)]*)\))?: ((?:.|\n {8,})+)", re.MULTILINE)  # below "Args:"
TYPED = {"int": int, "float": float, "bool": bool, "str": str, "table": list[str]}

AcceptChangedCode: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--accept-changed-code",
        help="Take own code that has changed since the run was begun; it is recorded.",
    ),
]
TRUST_CODE = typer.Option(  # of every command that has AcceptChangedCode
    "--trust-code",
    help="Execute the code that a file or folder names, now and later; its files are listed.",
    callback=lambda typed: trust_typed() if typed else None,
    expose_value=False,
)
Plan: TypeAlias = Annotated[bool, typer.Option("--plan", help="List what would run, and run nothing.")]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Write only JSON to stdout, one object per line.")
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the folder of the finished run.")
]
File: TypeAlias = Annotated[
    Path | None, typer.Argument(help="TOML file of the run; options override it.", metavar="EXPERIMENT.toml")
]
DataRoot: TypeAlias = Annotated[str | None, typer.Option("--data-root", help="Folder of the data sets.")]
WHAT, TRAIN, FED = "What to run", "Local training", "Federation"
WHERE = "Where it runs (changes no bit of the result)"
NUMBERS = "Arithmetic (each choice is deterministic; they differ by rounding)"
PANELS = {  # section, or a field of it → the panel of the help
    "": WHAT,
    "data": WHAT,
    "model": WHAT,
    "local": TRAIN,
    "federation": FED,
    "faults": FED,
    "privacy": "Privacy of clients",
    "clock": "Virtual clock, and servers that do not wait",
    "numerics": NUMBERS,
    "runtime": WHERE,
    "runtime.threads": NUMBERS,
    "runtime.gpu_fraction": NUMBERS,
}
# What --help shows of a run. Its other options, and these parameters of commands, are shown by --help-all.
USUAL = (
    *("method", "args", "seed", "data.dataset", "data.split", "data.local_test", "model.name"),
    *("local.lr", "local.batch_size", "local.epochs", "federation.rounds"),
    "runtime.execution",
)
RARE = ("board", "tracker", "project", "on_round", "profile", "at_once", "released", "tables", "accept")
HELP_ALL = "--help-all"
_NAMED = inspect.Parameter.KEYWORD_ONLY
SPELT = {  # field → its option, where that is not made from the name of the field
    "args": "--set",
    "data.root": "--data-root",
    "model.name": "--model",
    "model.args": "--model-arg",
    "local.drop_last": "--drop-last/--keep-last",
    "local.keep_optimizer": "--keep-optimizer/--reset-optimizer",
    "federation.metrics": "--metric",
    "privacy.clip": "--clip-update",
    "clock.seconds": "--step-seconds",
    "clock.spread": "--speed-spread",
    "clock.jitter": "--speed-jitter",
    "numerics.bits": "--numerics",
}
METAVARS = {  # field → the word that stands for its value, where that is neither its type nor its choices
    "method": "NAME",
    "loss": "REFERENCE",
    "data.dataset": "NAME",
    "data.split": "SPLIT",
    "data.root": "DIR",
    "model.name": "NAME",
    "model.init": "FILE",
    "local.schedule": "NAME",
    "federation.selection": "NAME",
    "federation.stop_when": "RULE",
    "federation.metrics": "REFERENCE",
    "faults": "PLAN.toml",
    "faults.attacker_list": "CLIENTS",
    "clock.trace": "FILE.csv",
    "score": "METRIC",
}
REPEATED = ("federation.metrics",)  # texts of which several may be given


def completed(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what the shell asks for the names that begin with what was typed."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _splits(incomplete: str) -> list[str]:
    from raffed.data.splits import SPLITS  # late, because it loads NumPy

    written = {"natural": "natural", "pXcY": "p10c2"}
    return completed(written.get(name, f"{name}:") for name in SPLITS)(incomplete)


def _arguments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the arguments of the methods that were typed before, without executing code of the user's."""
    typed = ctx.params.get("method") or ctx.params.get("methods") or "fedavg"
    known = [METHODS[name] for name in ([typed] if isinstance(typed, str) else typed) if name in METHODS]
    every = dict.fromkeys(f"{argument.name}=" for info in known for argument in info.described().arguments)
    return completed(every)(incomplete)


_COMPLETERS: dict[str, Callable[..., list[str]]] = {
    "method": completed(METHODS),
    "args": _arguments,
    "data.dataset": completed(DATASETS),
    "data.split": _splits,
    "model.name": completed(MODELS),
    "local.schedule": completed(SCHEDULES),
}


class Flag(NamedTuple):
    """An option: the field that it sets, its spelling, its panel, and what the field declares.

    Its type, default, range, choices and help are those that the field declares.
    """

    field: str
    flag: str
    panel: str
    declared: Declaration

    @property
    def parameter(self) -> str:
        """The name of the command's parameter."""
        return self.field.replace(".", "_")


def _flag(field: str, panel: str, declared: Declaration) -> Flag:
    words = declared.name.removesuffix("_args").replace("_", "-")
    spelt = f"--{words}-arg" if declared.name.endswith("_args") else f"--{words}"
    spelt = f"{spelt}/--no-{words}" if declared.kind == "bool" else spelt
    return Flag(field, SPELT.get(field, spelt), panel, declared)


def _run_flags() -> Iterator[Flag]:
    """Yield an option for each field of a run, except those that raffed fills in.

    The attack is what options say of faults. The other faults are in the file of a plan.
    """
    for section, kind in {"": RunConfig, **SECTIONS}.items():
        if section == "faults":
            yield _flag(section, FED, declarations(RunConfig)[section])
        for name, declared in declarations(kind).items():
            field = f"{section}.{name}".removeprefix(".")
            filled_in = name.endswith("_sha256") or name == "forked_at"
            planned = section == "faults" and not name.startswith("attack")
            if field not in SECTIONS and not filled_in and not planned:
                yield _flag(field, PANELS.get(field, PANELS[section]), declared)


def flags_of(kind: type, panel: str, without: Collection[str]) -> tuple[Flag, ...]:
    """Return an option for each field of a dataclass."""
    return tuple(
        _flag(name, panel, declared) for name, declared in declarations(kind).items() if name not in without
    )


def _with_preset(preset: Variant = "original") -> None:
    """Stands for the methods that have this argument, which has an option of its own."""


FLAGS: tuple[Flag, ...] = tuple(_run_flags())
PRESET = Flag("preset", "--preset", WHAT, declarations(_with_preset)["preset"])


def _show_all(context: typer.Context, asked: bool) -> None:
    if asked:
        context.meta[HELP_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll: TypeAlias = Annotated[
    bool,
    typer.Option(
        HELP_ALL,
        help="Show all options, also the rare ones, with remarks, and exit.",
        is_eager=True,
        callback=_show_all,
        expose_value=False,
    ),
]


def run_options(
    without: Collection[str] = (), asked: Collection[Flag] = (), usual: Collection[str] = USUAL
) -> Callable[[Command], Command]:
    """Give a command the options of a run, which it receives together as its argument `flags`.

    Args:
        without: Fields that get no option.
        asked: More options. The command receives those that were typed as its argument `asked`.
        usual: Fields whose options --help shows. The others are shown by --help-all.
    """
    wanted = [flag for flag in FLAGS if flag.field not in without]
    every = [*wanted, *([PRESET] if "args" not in without else []), *asked]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        parameters = {name: p for name, p in signature.parameters.items() if name not in ("flags", "asked")}

        def wrapper(**given: Typed) -> None:
            received = {name: given[name] for name in parameters.keys() & given.keys()}
            more = {"asked": typed_flags(given, asked)} if asked else {}
            command(flags=typed_flags(given, wanted), **more, **received)

        wrapper.__doc__, wrapper.__name__ = command.__doc__, command.__name__
        options = [_option(flag, flag.field in usual) for flag in every]
        rare = inspect.Parameter("help_all", _NAMED, default=False, annotation=HelpAll)
        return _with_parameters(wrapper, [*map(_shown, parameters.values()), rare, *options])

    return decorate


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter of a command, which --help leaves out if it is rare."""
    if parameter.name not in RARE:
        return parameter
    kind, info = parameter.annotation, typer.Option()
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    info = copy.copy(info)
    info.hidden = True
    return parameter.replace(annotation=Annotated[kind, info])


def documented(command: Command) -> Command:
    """Give the parameters of a command what its docstring says of them.

    A parameter that is only taken by its name is an option, and any other one is an argument. In the
    docstring its name may be followed by its spelling and the word that stands for its value, as in
    `methods (--method NAME): Method to compare.`
    """
    said = sections_of(command).get("Args", "")
    entries = {name: (spelling, help) for name, spelling, help in ENTRY.findall(said)}
    parameters = []
    for option in inspect.signature(command, eval_str=True).parameters.values():
        parameters.append(_documented(option, *entries[option.name]) if option.name in entries else option)
        if option.name == "accept":
            trust = copy.copy(TRUST_CODE)
            trust.hidden = get_args(option.annotation)[1].hidden
            parameters.append(option.replace(name="trust", annotation=Annotated[bool, trust]))
    if command.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return _with_parameters(command, parameters)
    # Typer passes an option that is not exposed as well
    called = functools.wraps(command)(lambda trust=None, **given: command(**given))
    return _with_parameters(called, parameters)


def sections_of(command: Command) -> dict[str, str]:
    """Return the sections of a docstring, such as "Args", and the text before them as that of ""."""
    text, *parts = SECTION.split(inspect.getdoc(command) or "")
    return {"": text.strip(), **dict(zip(parts[::2], parts[1::2], strict=True))}


def _documented(parameter: inspect.Parameter, spelling: str, text: str) -> inspect.Parameter:
    kind, info = parameter.annotation, None
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    words = spelling.split()
    if parameter.kind is _NAMED:
        info = copy.copy(info or typer.Option())
        spelt = tuple(word for word in words if word.startswith("--"))
        info.param_decls = spelt or (f"--{parameter.name.replace('_', '-')}",)
    else:
        info = info or typer.Argument()
    info.help = escaped(" ".join(text.split()))
    info.metavar = escaped(" ".join(word for word in words if not word.startswith("--"))) or None
    return parameter.replace(annotation=Annotated[kind, info])


class BriefCommand(TyperCommand):
    """A command whose --help leaves out rare options and remarks; --help-all shows them, too."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help. The first section below the options has the examples, and the others remarks."""
        shown = copy.copy(self)
        if HELP_ALL in ctx.meta:
            shown.params = [copy.copy(option) for option in self.params]
            for option in shown.params:
                option.hidden = False  # type: ignore[attr-defined]
        elif self.epilog and any(option.opts == [HELP_ALL] for option in self.params):
            shown.epilog = "[bold]".join(self.epilog.split("[bold]")[:2])
        TyperCommand.format_help(shown, ctx, formatter)


def escaped(text: str) -> str:
    """Return a text in which square brackets are no markup."""
    return text.replace("[", "\\[")


def _with_parameters(command: Command, parameters: Sequence[inspect.Parameter]) -> Command:
    """Let typer see these parameters of a command."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def typed_flags(given: Mapping[str, Typed], wanted: Iterable[Flag] = FLAGS) -> Flags:
    """Return field → value, from a command's parameters.

    `--preset NAME` is an argument of the method.
    """
    typed = {flag.field: given.get(flag.parameter) for flag in wanted}
    if "args" in typed and given.get("preset") is not None:
        before = typed["args"]
        typed["args"] = [*(before if isinstance(before, list) else []), f"preset={given['preset']}"]
    return {field: value for field, value in typed.items() if value not in (None, [], ())}


def text_of(flags: Flags, field: str) -> str | None:
    """Return what was typed for an option that takes a text; None if it was not given."""
    typed = flags.get(field)
    return None if typed is None else str(typed)


def _option(flag: Flag, usual: bool) -> inspect.Parameter:
    """Return the parameter of a command that holds an option, as typer reads it.

    Its choices, meaning, range and default are in the help.
    """
    declared = flag.declared
    typed = next((TYPED[kind] for kind in declared.kinds if kind in TYPED), str)  # a plan of faults is a file
    typed = list[str] if flag.field in REPEATED else typed
    shown = "NAME=VALUE" if declared.kind == "table" else "|".join(filter(None, declared.choices))
    option = typer.Option(
        flag.flag,
        help=help_text(declared, flag.flag),
        rich_help_panel=flag.panel,
        hidden=not usual,
        metavar=METAVARS.get(flag.field, shown) or None,
        show_default=False,
        autocompletion=_COMPLETERS.get(flag.field),
    )
    return inspect.Parameter(flag.parameter, _NAMED, default=None, annotation=Annotated[typed | None, option])


def help_text(declared: Declaration, flag: str) -> str:
    """Return what an option means, its range if it has one, and its default.

    Square brackets would be markup, so they are escaped.
    """
    between = f" {declared.range}" if declared.range else ""
    return f"{escaped(declared.summary + between)} [dim]({shown_default(declared, flag)})[/dim]"


def shown_default(declared: Declaration, flag: str) -> str:
    """Return the default of an option as it is typed; "none" for an empty one."""
    if declared.kind == "bool":
        return flag.split("/")[declared.default == "False"].lstrip("-")
    empty = declared.default in ("None", "''", "{}") or not any(kind in TYPED for kind in declared.kinds)
    return "none" if empty else declared.shown_default
