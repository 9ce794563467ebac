"""The options of `run` and `compare`, one for each field of RunConfig. typer's signature is made
from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, NamedTuple, get_args

import typer

from raffed.config.privacy import PLACES
from raffed.config.run import EXECUTIONS, MEASURES, PRECISIONS, STYLES, TRANSPORTS, RunConfig
from raffed.data.catalogue import DATASETS
from raffed.errors import Preset
from raffed.methods import METHODS
from raffed.models import MODELS

Flags = dict[str, Any]  # dotted field of RunConfig → value as typed, for options that were typed

WHAT, TRAIN, FED = "What to run", "Local training", "Federation"
WHERE = "Where it runs (changes no bit of the result, unless --execution auto chooses stacks)"
PRIVATE = "Privacy of clients"
NUMBERS = "Arithmetic (each choice is deterministic; they differ by rounding)"
EXECUTION_HELP = (
    "ray: actors; serial: this process; auto: what a short probe finds fastest, stacks as by --cohort among "
    "it."
)


class Flag(NamedTuple):
    """An option: the field of RunConfig that it sets, its spelling, type, panel and help."""

    field: str
    flag: str
    kind: Any
    panel: str
    help: str
    metavar: str | None = None


FLAGS: tuple[Flag, ...] = (
    Flag("method", "--method", str, WHAT, "Method, see `raffed methods`.", "NAME"),
    Flag("args", "--set", list[str], WHAT, "Argument of the method; repeat for more.", "NAME=VALUE"),
    Flag("data.dataset", "--dataset", str, WHAT, "Data set, see `raffed datasets`.", "NAME"),
    Flag("data.split", "--split", str, WHAT, "Who has which data, see `raffed splits`.", "SPLIT"),
    Flag("model.name", "--model", str, WHAT, "Network, see `raffed models`.", "NAME"),
    Flag(
        "model.args",
        "--model-arg",
        list[str],
        WHAT,
        "Argument of the network, e.g. head_bias=true.",
        "NAME=VALUE",
    ),
    Flag("seed", "--seed", int, WHAT, "Decides everything random."),
    Flag("data.root", "--data-root", str, WHAT, "Folder of the data sets; RAFFED_DATA if not given.", "DIR"),
    Flag("data.download", "--download/--no-download", bool, WHAT, "Fetch missing data files."),
    Flag("data.transform", "--transform", str, WHAT, f"Whose preprocessing: {', '.join(STYLES)}.", "STYLE"),
    Flag(
        "data.local_test",
        "--local-test",
        float,
        WHAT,
        "Share of each client's data kept for testing, 0 to 0.9.",
    ),
    Flag("data.samples", "--samples", int, WHAT, "Size of the training pool, equal by class; 0: all."),
    Flag(
        "data.validation",
        "--validation",
        float,
        WHAT,
        "Share of each client's training data kept for choosing, 0 to 0.9.",
    ),
    Flag("local.lr", "--lr", float, TRAIN, "Learning rate η."),
    Flag("local.momentum", "--momentum", float, TRAIN, "Momentum of SGD."),
    Flag("local.weight_decay", "--weight-decay", float, TRAIN, "Added to the gradient, times the weights."),
    Flag("local.batch_size", "--batch-size", int, TRAIN, "Samples per step."),
    Flag(
        "local.epochs", "--epochs", float, TRAIN, "Passes over a client's data per round; 0.5 is half of one."
    ),
    Flag("local.drop_last", "--drop-last/--keep-last", bool, TRAIN, "Skip the short last batch of an epoch."),
    Flag("local.min_steps", "--min-steps", int, TRAIN, "At least so many steps per client and round."),
    Flag("local.clip_norm", "--clip-norm", float, TRAIN, "Largest norm of a gradient."),
    Flag("local.warmup_rounds", "--warmup-rounds", int, TRAIN, "Rounds over which the rate rises; 0: none."),
    Flag("federation.rounds", "--rounds", int, FED, "Communication rounds."),
    Flag("federation.participation", "--participation", float, FED, "Share of the clients drawn each round."),
    Flag("federation.eval_every", "--eval-every", int, FED, "Rounds between evaluations."),
    Flag(
        "federation.weighting",
        "--weighting",
        str,
        FED,
        "Weights of the mean, whatever the method's: samples or clients.",
    ),
    Flag("federation.survey", "--survey", int, FED, "Score all clients' models after this many last rounds."),
    Flag(
        "federation.measures",
        "--measures",
        str,
        FED,
        "Measured after the last round besides.",
        ",".join(MEASURES),
    ),
    Flag(
        "faults",
        "--faults",
        str,
        FED,
        "What goes wrong on purpose: a TOML file with \\[faults].",
        "PLAN.toml",
    ),
    Flag("privacy.clip", "--clip-update", float, PRIVATE, "Largest norm of a client's update."),
    Flag("privacy.noise", "--noise", float, PRIVATE, "Gaussian noise, in units of --clip-update; 0: none."),
    Flag(
        "privacy.noise_at",
        "--noise-at",
        str,
        PRIVATE,
        "Noise on the mean, or on every upload.",
        "|".join(PLACES),
    ),
    Flag("privacy.delta", "--delta", float, PRIVATE, "δ of the (ε, δ) that is recorded."),
    Flag(
        "privacy.masks",
        "--masks/--no-masks",
        bool,
        PRIVATE,
        "Secure aggregation: uploads under masks that cancel.",
    ),
    Flag("numerics.cohort", "--cohort", int, NUMBERS, "Clients stacked and stepped together; 0: one by one."),
    Flag(
        "numerics.precision",
        "--precision",
        str,
        NUMBERS,
        "fp32, or bf16 for the passes.",
        "|".join(PRECISIONS),
    ),
    Flag("runtime.threads", "--threads", int, NUMBERS, "torch threads per actor."),
    Flag("runtime.gpu_fraction", "--gpu-fraction", float, NUMBERS, "Share of a GPU per actor, 1/k; 0: CPU."),
    Flag("runtime.execution", "--execution", str, WHERE, EXECUTION_HELP, "|".join(EXECUTIONS)),
    Flag("runtime.actors", "--actors", int, WHERE, "Client actors; 0: as many as cores or GPU shares."),
    Flag(
        "runtime.clients_per_actor", "--clients-per-actor", int, WHERE, "1: one actor a client; 0: automatic."
    ),
    Flag("runtime.address", "--address", str, WHERE, "Ray cluster; auto: the one this machine is in."),
    Flag(
        "runtime.transport",
        "--transport",
        str,
        WHERE,
        "How actors are called: sockets on one machine, or Ray.",
        "|".join(TRANSPORTS),
    ),
    Flag("runtime.max_restarts", "--max-restarts", int, WHERE, "How many lost actors a run puts up with."),
    Flag("runtime.checkpoint_every", "--checkpoint-every", int, WHERE, "Rounds between checkpoints."),
    Flag("runtime.keep_checkpoints", "--keep-checkpoints", int, WHERE, "How many checkpoints are kept."),
)
PRESET = Flag(
    "preset",
    "--preset",
    str,
    WHAT,
    (
        "Variant of the method: as published (original) or as in MAP's released code (authors). The same as "
        "--set preset=…."
    ),
    "|".join(get_args(Preset)),
)
_NAMES: dict[str, Collection[str]] = {"method": METHODS, "data.dataset": DATASETS, "model.name": MODELS}


def run_options(without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of FLAGS, which it receives together as its argument `flags`."""
    wanted = [flag for flag in FLAGS if flag.field not in without]
    short = [PRESET] if "args" not in without else []

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapper(**given: Any) -> None:
            typed = typed_flags(given, wanted)
            for flag in (*wanted, *short):
                given.pop(_parameter(flag))
            command(
                flags={field: value for field, value in typed.items() if value is not None and value != []},
                **given,
            )

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "flags"]
        kind = inspect.Parameter.KEYWORD_ONLY
        made = [
            inspect.Parameter(_parameter(flag), kind, default=None, annotation=_annotation(flag))
            for flag in (*wanted, *short)
        ]
        every = [p.replace(kind=kind) for p in own] + made
        wrapper.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in every}
        wrapper.__doc__, wrapper.__name__ = command.__doc__, command.__name__
        return wrapper

    return decorate


def typed_flags(given: Mapping[str, Any], wanted: Iterable[Flag] = FLAGS) -> Flags:
    """Return field → value, from a command's parameters.

    `--preset NAME` is an argument of the method.
    """
    typed = {flag.field: given.get(_parameter(flag)) for flag in wanted}
    if given.get("preset") is not None:
        typed["args"] = [*(typed.get("args") or []), f"preset={given['preset']}"]
    return typed


def _parameter(flag: Flag) -> str:
    return flag.field.replace(".", "_")


def _annotation(flag: Flag) -> Any:
    option = typer.Option(
        flag.flag,
        help=flag.help + _default(flag.field),
        rich_help_panel=flag.panel,
        metavar=flag.metavar,
        show_default=False,
        autocompletion=_completer(flag.field),
    )
    return Annotated[flag.kind | None, option]


def _default(field: str) -> str:
    """Return the default as help shows it; empty for None, False and empty tables."""
    value: Any = RunConfig()
    for part in field.split("."):
        value = getattr(value, part, None)  # PRESET is not a field
    if value is None or value is False or value == {} or is_dataclass(value):
        return ""
    return f" [dim]({value:g})[/dim]" if isinstance(value, float) else f" [dim]({value})[/dim]"


def _completer(field: str) -> Callable[[str], list[str]] | None:
    names = _NAMES.get(field)
    return (
        None if names is None else lambda incomplete: [name for name in names if name.startswith(incomplete)]
    )
