"""What was probably meant, where something was typed in another place than it belongs.

Only looked at after a mistake, because it reads the arguments of methods from their source.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from typer.core import TyperCommand

from raffed.cli.options import FLAGS
from raffed.errors import UsageError
from raffed.methods import METHODS, method_info

if TYPE_CHECKING:
    from typer._click.core import Context

FEW = 4  # methods that a message names


def check_file(file: Path) -> None:
    """Refuse the name of a method where the TOML file of a run belongs.

    Raises:
        UsageError: There is no such file, but there is such a method.
    """
    text = str(file)
    if not file.exists() and text.lower() in METHODS:
        raise UsageError(f"{text} is a method and not a TOML file; did you mean --method {text.lower()}?")


def check_settings(methods: Iterable[str], names: Collection[str]) -> None:
    """Refuse a field of the configuration that is set like an argument of the method.

    Args:
        methods: The methods of the run, by name or reference.
        names: The arguments that are given by --set, such as mu or fedmr.mu1.

    Raises:
        UsageError: None of the methods has this argument, but there is such an option.
    """
    suspects = {name: flag for name in names if (flag := _option(name)) is not None}
    if not suspects:
        return
    known = {one for method in methods for one in _arguments(method)}
    for name, (field, option) in suspects.items():
        if name.rpartition(".")[2] not in known or name == field:
            raise UsageError(
                f"--set {name}: {', '.join(methods)} does not have this argument; {field} is set by {option}"
            )


def _option(name: str) -> tuple[str, str] | None:
    """Return the field of the configuration that has a name, and its option: lr, local.lr → --lr."""
    for flag in FLAGS:
        if name in (flag.field, flag.field.rpartition(".")[2]) and flag.field != "args":
            return flag.field, flag.flag.partition("/")[0]
    return None


def _arguments(method: str) -> set[str]:
    return {one.name for one in method_info(method).described().arguments}


class Hinting(TyperCommand):
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
    own = [one.lower() for one in typed if one.lower() in METHODS and name in _arguments(one.lower())]
    if own:
        return f"{option} is not an option; {name} is an argument of {own[0]}: give --set {name}=VALUE"
    every = [method for method in METHODS if name in _arguments(method)]
    if not every or typed:
        return _near(option, name, own or [one.lower() for one in typed if one.lower() in METHODS])
    shown = ", ".join(every[:FEW]) + (f" and {len(every) - FEW} more" if len(every) > FEW else "")
    return (
        f"{option} is not an option; {name} is an argument of {shown}: give --method {every[0]} "
        f"--set {name}=VALUE"
    )


def _near(option: str, name: str, methods: Sequence[str]) -> str:
    """Return the argument of a method whose name is like an option that does not exist."""
    for method in methods:
        for near in difflib.get_close_matches(name, sorted(_arguments(method)), n=1, cutoff=0.8):
            return f"{option} is not an option; {method} has an argument {near}: give --set {near}=VALUE"
    return ""


__all__ = ["Hinting", "check_file", "check_settings", "option_hint"]
