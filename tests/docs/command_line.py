"""The page of the command line, made from the tree of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import typer

from raffed.cli.app import app
from raffed.cli.options import HELP_ALL

HEAD = """# Command line

`python -m tests.docs.reference` made this page from the commands. `raffed COMMAND --help` prints the usual
options of one of them, and `--help-all` all that stand here. Exit codes: 0 done; 1 failed; 2 the request was
refused; 129, 130 or 143 stopped, and can be resumed.

"""
MARKUP = re.compile(r"(?<!\\)\[/?(?:dim|bold)\]")
DEFAULT = re.compile(r" \[dim\]\((.*)\)\[/dim\]$", re.DOTALL)
MANY = 10  # options that a command shares with `raffed run`, from which they are named only


def plain(text: str) -> str:
    """Return a help text without the markup of colours."""
    return MARKUP.sub("", text).replace("\\[", "[")


def command_line() -> str:
    """Return the page."""
    root = typer.main.get_command(app)
    commands = dict(_visible("raffed", root.commands))
    shared = {_key(one): one for one in commands["raffed run"].params if _is_option(one)}
    rows = [f"| [`{name}`](#{_anchor(name)}) | {_summary(one)} |" for name, one in commands.items()]
    parts = [HEAD + "| command | what it does |\n|---|---|", *rows, ""]
    for name, command in commands.items():
        parts.append(_section(name, command, {} if name == "raffed run" else shared))
    return "\n".join(parts)


def _visible(prefix: str, commands: Mapping[str, typer.core.TyperCommand]) -> Iterator[tuple[str, object]]:
    for name, command in commands.items():
        if command.hidden:
            continue
        inner = getattr(command, "commands", None)
        if inner:
            yield from _visible(f"{prefix} {name}", inner)
        else:
            yield f"{prefix} {name}", command


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _summary(command) -> str:
    return plain(command.help or "").partition("\n")[0].replace("|", "\\|")


def _is_option(param) -> bool:
    return param.opts[0].startswith("-") and param.opts != [HELP_ALL]


def _key(param) -> tuple[str, str]:
    return " ".join(param.opts), param.help or ""


def _section(name: str, command, shared: Mapping[tuple[str, str], object]) -> str:
    taken = [one for one in command.params if _is_option(one) and _key(one) in shared]
    taken = taken if len(taken) > MANY else []
    given = [one for one in command.params if not one.opts[0].startswith("-")]
    options = [one for one in command.params if _is_option(one) and one not in taken]
    usage = " ".join([name, "[OPTIONS]", *(one.metavar or one.name.upper() for one in given)])
    lines = [f"## {name}", "", f"`{usage}`", "", " ".join(plain(command.help or "").split()), ""]
    lines += _epilog(plain(command.epilog or "").replace("\b", ""))
    if given:
        lines += ["| argument | meaning |", "|---|---|", *(_argument(one) for one in given), ""]
    panels = dict.fromkeys(one.rich_help_panel or "" for one in options)
    for panel in panels:
        own = [one for one in options if (one.rich_help_panel or "") == panel]
        lines += [f"**{panel}**\n"] if panel else []
        lines += ["| option | value | default | meaning |", "|---|---|---|---|", *map(_option, own), ""]
    if taken:
        names = ", ".join(f"`{one.opts[0]}`" for one in taken)
        lines += [f"It also takes these options of [`raffed run`](#raffed-run): {names}.", ""]
    return "\n".join(lines)


def _epilog(text: str) -> list[str]:
    """Return the examples as a list, and what else the help ends with as paragraphs."""
    lines = []
    for paragraph in filter(None, (" ".join(line.split()) for line in text.splitlines())):
        if paragraph.startswith("raffed "):
            lines.append(f"- `{paragraph}`")
            continue
        title = len(paragraph.split()) <= 3 and not paragraph.endswith(".")
        lines += [*([""] if lines and lines[-1] else []), f"*{paragraph}*" if title else paragraph, ""]
    return [*lines, ""] if lines and lines[-1] else lines


def _argument(param) -> str:
    return f"| `{param.metavar or param.name.upper()}` | {_cell(plain(param.help or ''))} |"


def _option(param) -> str:
    names = ", ".join(f"`{one}`" for one in (*param.opts, *param.secondary_opts))
    found = DEFAULT.search(param.help or "")
    text = plain(DEFAULT.sub("", param.help or ""))
    default = found[1] if found else _default(param)
    shown = f"`{default}`" if default else ("required" if param.required else "")
    return f"| {names} | {_value(param)} | {_cell(shown)} | {_cell(text)} |"


def _default(param) -> str:
    value = param.default
    empty = value is None or value is False or value == () or value == [] or callable(value)
    return "" if empty else str(value)


def _value(param) -> str:
    if getattr(param, "is_flag", False):
        return ""
    annotation = param.type_descriptor.annotation
    kind = {int: "whole number", float: "number"}.get(annotation, "text")
    shown = param.metavar or kind
    return f"`{_cell(shown)}`" if param.metavar else kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
