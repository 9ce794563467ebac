"""The options of `run` and `compare`, one for each field of RunConfig. typer's signature is made
from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, NamedTuple, TypeAlias

import typer
from typer.models import OptionInfo

from raffed.config.optimizers import SCHEDULES
from raffed.config.run import RunConfig
from raffed.config.sections import SECTIONS
from raffed.config.validation import Declaration, declarations
from raffed.data.catalogue import DATASETS
from raffed.methods import METHODS
from raffed.methods.registry import Variant
from raffed.models import MODELS
from raffed.own.gate import trust_typed

Typed: TypeAlias = str | int | float | bool | list[str] | None  # what typer makes of an option
Flags: TypeAlias = Mapping[str, Typed]  # dotted field of RunConfig → value, for options that were typed
Command: TypeAlias = Callable[..., None]
TYPED = {"int": int, "float": float, "bool": bool, "str": str, "table": list[str]}

AcceptChangedCode: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--accept-changed-code",
        help="Take own code that has changed since the run was begun; it is recorded.",
    ),
]
TrustCode: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Execute the code that a file or folder names, now and later; its files are listed.",
        callback=lambda typed: trust_typed() if typed else None,
        expose_value=False,
    ),
]
PLAN_HELP = "List what would run, and run nothing."
Plan: TypeAlias = Annotated[bool, typer.Option("--plan", help=PLAN_HELP)]
WHAT, TRAIN, FED = "What to run", "Local training", "Federation"
WHERE = "Where it runs (changes no bit of the result)"
PRIVATE = "Privacy of clients"
CLOCK = "Virtual clock, and servers that do not wait"
NUMBERS = "Arithmetic (each choice is deterministic; they differ by rounding)"


def _with_preset(preset: Variant = "original") -> None:
    """Stands for the methods that have this argument, which has an option of its own."""


class Flag(NamedTuple):
    """An option: the field of RunConfig that it sets, its spelling, panel and placeholder.

    Its type, default, range, choices and help are those that the field declares.
    """

    field: str
    flag: str
    panel: str
    metavar: str | None = None

    @property
    def declared(self) -> Declaration:
        """What the field declares; the arguments of a method declare `preset`."""
        if self.field == "preset":
            return declarations(_with_preset)["preset"]
        section, _, name = self.field.rpartition(".")
        return declarations(SECTIONS[section] if section else RunConfig)[name]


FLAGS: tuple[Flag, ...] = (
    Flag("method", "--method", WHAT, "NAME"),
    Flag("args", "--set", WHAT, "NAME=VALUE"),
    Flag("loss", "--loss", WHAT, "REFERENCE"),
    Flag("loss_args", "--loss-arg", WHAT, "NAME=VALUE"),
    Flag("data.dataset", "--dataset", WHAT, "NAME"),
    Flag("data.split", "--split", WHAT, "SPLIT"),
    Flag("data.split_args", "--split-arg", WHAT, "NAME=VALUE"),
    Flag("model.name", "--model", WHAT, "NAME"),
    Flag("model.args", "--model-arg", WHAT, "NAME=VALUE"),
    Flag("model.init", "--init", WHAT, "FILE"),
    Flag("seed", "--seed", WHAT),
    Flag("data.root", "--data-root", WHAT, "DIR"),
    Flag("data.download", "--download/--no-download", WHAT),
    Flag("data.transform", "--transform", WHAT),
    Flag("data.transform_args", "--transform-arg", WHAT, "NAME=VALUE"),
    Flag("data.pool", "--pool", WHAT),
    Flag("data.local_test", "--local-test", WHAT),
    Flag("data.samples", "--samples", WHAT),
    Flag("data.validation", "--validation", WHAT),
    Flag("local.lr", "--lr", TRAIN),
    Flag("local.momentum", "--momentum", TRAIN),
    Flag("local.weight_decay", "--weight-decay", TRAIN),
    Flag("local.batch_size", "--batch-size", TRAIN),
    Flag("local.epochs", "--epochs", TRAIN),
    Flag("local.epochs_to", "--epochs-to", TRAIN),
    Flag("local.drop_last", "--drop-last/--keep-last", TRAIN),
    Flag("local.min_steps", "--min-steps", TRAIN),
    Flag("local.clip_norm", "--clip-norm", TRAIN),
    Flag("local.warmup_rounds", "--warmup-rounds", TRAIN),
    Flag("local.schedule", "--schedule", TRAIN, "NAME"),
    Flag("local.schedule_args", "--schedule-arg", TRAIN, "NAME=VALUE"),
    Flag("local.schedule_by", "--schedule-by", TRAIN),
    Flag("local.optimizer", "--optimizer", TRAIN),
    Flag("local.optimizer_args", "--optimizer-arg", TRAIN, "NAME=VALUE"),
    Flag("local.keep_optimizer", "--keep-optimizer/--reset-optimizer", TRAIN),
    Flag("local.clip_value", "--clip-value", TRAIN),
    Flag("local.label_smoothing", "--label-smoothing", TRAIN),
    Flag("federation.rounds", "--rounds", FED),
    Flag("federation.participation", "--participation", FED),
    Flag("federation.eval_every", "--eval-every", FED),
    Flag("federation.weighting", "--weighting", FED),
    Flag("federation.selection", "--selection", FED, "NAME"),
    Flag("federation.selection_args", "--selection-arg", FED, "NAME=VALUE"),
    Flag("federation.mean", "--mean", FED),
    Flag("federation.mean_args", "--mean-arg", FED, "NAME=VALUE"),
    Flag("federation.compression", "--compression", FED),
    Flag("federation.compression_args", "--compression-arg", FED, "NAME=VALUE"),
    Flag("federation.survey", "--survey", FED),
    Flag("federation.measures", "--measures", FED),
    Flag("federation.strength_every", "--strength-every", FED),
    Flag("federation.stop_when", "--stop-when", FED, "RULE"),
    Flag("federation.metrics", "--metric", FED, "REFERENCE"),
    Flag("federation.unseen_clients", "--unseen-clients", FED),
    Flag("faults", "--faults", FED, "PLAN.toml"),
    Flag("faults.attack", "--attack", FED),
    Flag("faults.attackers", "--attackers", FED),
    Flag("faults.attacker_list", "--attacker-list", FED, "CLIENTS"),
    Flag("faults.attack_strength", "--attack-strength", FED),
    Flag("privacy.clip", "--clip-update", PRIVATE),
    Flag("privacy.noise", "--noise", PRIVATE),
    Flag("privacy.noise_at", "--noise-at", PRIVATE),
    Flag("privacy.delta", "--delta", PRIVATE),
    Flag("privacy.masks", "--masks/--no-masks", PRIVATE),
    Flag("clock.speeds", "--speeds", CLOCK),
    Flag("clock.seconds", "--step-seconds", CLOCK),
    Flag("clock.work", "--work", CLOCK),
    Flag("clock.spread", "--speed-spread", CLOCK),
    Flag("clock.jitter", "--speed-jitter", CLOCK),
    Flag("clock.trace", "--trace", CLOCK, "FILE.csv"),
    Flag("clock.server", "--server", CLOCK),
    Flag("clock.buffer", "--buffer", CLOCK),
    Flag("clock.mixing", "--mixing", CLOCK),
    Flag("clock.staleness", "--staleness", CLOCK),
    Flag("clock.staleness_a", "--staleness-a", CLOCK),
    Flag("clock.staleness_b", "--staleness-b", CLOCK),
    Flag("numerics.cohort", "--cohort", NUMBERS),
    Flag("numerics.precision", "--precision", NUMBERS),
    Flag("numerics.bits", "--numerics", NUMBERS),
    Flag("numerics.convolutions", "--convolutions", NUMBERS),
    Flag("runtime.threads", "--threads", NUMBERS),
    Flag("runtime.gpu_fraction", "--gpu-fraction", NUMBERS),
    Flag("runtime.execution", "--execution", WHERE),
    Flag("runtime.actors", "--actors", WHERE),
    Flag("runtime.clients_per_actor", "--clients-per-actor", WHERE),
    Flag("runtime.address", "--address", WHERE),
    Flag("runtime.transport", "--transport", WHERE),
    Flag("runtime.max_restarts", "--max-restarts", WHERE),
    Flag("runtime.checkpoint_every", "--checkpoint-every", WHERE),
    Flag("runtime.keep_checkpoints", "--keep-checkpoints", WHERE),
)
REPEATED = ("federation.metrics",)  # texts of which several may be given
PRESET = Flag("preset", "--preset", WHAT)
_NAMES: dict[str, Collection[str]] = {
    "method": METHODS,
    "data.dataset": DATASETS,
    "model.name": MODELS,
    "local.schedule": SCHEDULES,
}


def run_options(without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the options of FLAGS, which it receives together as its argument `flags`."""
    wanted = [flag for flag in FLAGS if flag.field not in without]
    every = [*wanted, *([PRESET] if "args" not in without else [])]

    def decorate(command: Command) -> Command:
        def wrapper(**given: Typed) -> None:
            flags = typed_flags(given, wanted)
            for flag in every:
                given.pop(_parameter(flag))
            command(flags=flags, **given)

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "flags"]
        made = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *map(_option, every)]
        wrapper.__signature__ = signature.replace(parameters=made)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in made}
        wrapper.__doc__, wrapper.__name__ = command.__doc__, command.__name__
        return wrapper

    return decorate


def typed_flags(given: Mapping[str, Typed], wanted: Iterable[Flag] = FLAGS) -> Flags:
    """Return field → value, from a command's parameters.

    `--preset NAME` is an argument of the method.
    """
    typed = {flag.field: given.get(_parameter(flag)) for flag in wanted}
    if given.get("preset") is not None:
        before = typed.get("args")
        typed["args"] = [*(before if isinstance(before, list) else []), f"preset={given['preset']}"]
    return {field: value for field, value in typed.items() if value is not None and value != []}


def text_of(flags: Flags, field: str) -> str | None:
    """Return what was typed for an option that takes a text; None if it was not given."""
    typed = flags.get(field)
    return None if typed is None else str(typed)


def words_of(flags: Flags, field: str) -> list[str]:
    """Return what was typed for an option that can be repeated."""
    typed = flags.get(field)
    return list(typed) if isinstance(typed, list | tuple) else []


def _parameter(flag: Flag) -> str:
    return flag.field.replace(".", "_")


def _option(flag: Flag) -> inspect.Parameter:
    """Return the parameter of a command that holds an option, as typer reads it."""
    declared = flag.declared
    typed = next((TYPED[kind] for kind in declared.kinds if kind in TYPED), str)  # a plan of faults is a file
    typed = list[str] if flag.field in REPEATED else typed
    option = declared_option(declared, flag.flag, flag.panel, flag.metavar)
    option.autocompletion = _completer(flag.field)
    return inspect.Parameter(
        _parameter(flag),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[typed | None, option],
    )


def declared_option(declared: Declaration, flag: str, panel: str, metavar: str | None = None) -> OptionInfo:
    """Return typer's option for what is declared: its choices, meaning, range and default are in the help."""
    option: OptionInfo = typer.Option(
        flag,
        help=help_text(declared, flag),
        rich_help_panel=panel,
        metavar=metavar or "|".join(filter(None, declared.choices)) or None,
        show_default=False,
    )
    return option


def help_text(declared: Declaration, flag: str) -> str:
    """Return what an option means, its range if it has one, and its default.

    Square brackets would be markup, so they are escaped.
    """
    between = f" {declared.range}" if declared.range else ""
    return (
        f"{declared.summary}{between}".replace("[", "\\[") + f" [dim]({shown_default(declared, flag)})[/dim]"
    )


def shown_default(declared: Declaration, flag: str) -> str:
    """Return the default of an option as it is typed; "none" for an empty one."""
    if declared.kind == "bool":
        return flag.split("/")[declared.default == "False"].lstrip("-")
    empty = declared.default in ("None", "''", "{}") or not any(kind in TYPED for kind in declared.kinds)
    return "none" if empty else declared.shown_default


def _completer(field: str) -> Callable[[str], list[str]] | None:
    names = _NAMES.get(field)
    return (
        None if names is None else lambda incomplete: [name for name in names if name.startswith(incomplete)]
    )
