"""What raffed says to a user is plain English (CONTRIBUTING.md): the commonest faults do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("raffed", "analysis", "reproductions", "tune_spaces")
SPOKEN = frozenset({"echo", "warning", "warn", "info", "error", "print", "secho", "tell", "Doc"})
HELP = frozenset({"help", "meaning", "description", "epilog"})
# Fault → the usual way to say it. {} stands for a value.
FAULTS = {
    r"\bwanted\b": "must be, or give",
    r"(?<!there )(?<!There )\b(is|are) no\b(?! longer)": "is not a",
    r"\bbesides\b": "also",
    r"\bspelt\b": "written",
    r"\breckon": "compute",
    r"\bhereby\b|\bthereof\b|\bwhereof\b": "a full sentence",
    r"\bnone such\b|\bno such\b(?<!there is no such)(?<!there are no such)": "there is no such",
    r"^no \w+(?! \w+ (is|are|was|has|does|have|runs|can))(?=[;,.]|$)": "there is no",
    r"\bgot\b": "has, or but there are",
    r"\bhas to\b": "must",
    r"\bcarr(y|ies|ied) out\b": "run",
}


def spoken(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of what an error, a log line, a printed line, a help text or a Doc says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            whole = name in SPOKEN or name.endswith("Error")
            parts = [*node.args] if whole else []
            parts += [one.value for one in node.keywords if whole or one.arg in HELP]
            for part in parts:
                yield from ((node.lineno, text) for text in texts(part))


def texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts of an expression, with {} in place of values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from texts(node.left)
        yield from texts(node.right)


def faults(text: str) -> list[str]:
    return [f"{fault!r}: say {better!r}" for fault, better in FAULTS.items() if re.search(fault, text)]


def test_errors_logs_and_help_texts_use_the_usual_words() -> None:
    read, found = 0, []
    for path in (path for place in PLACES for path in sorted((ROOT / place).rglob("*.py"))):
        for line, text in spoken(ast.parse(path.read_text())):
            read += 1
            found += [f"{path.relative_to(ROOT)}:{line} {text!r}: {fault}" for fault in faults(text)]
    assert read > 600, "messages are not found any more"
    assert not found, "\n".join(found)


def test_commands_print_by_the_one_function_that_makes_names_visible() -> None:
    """A name that a command prints may hold what a terminal obeys; what else prints is named here."""
    allowed = {
        ("screen.py", "print(json.dumps(plain(dict(event)), allow_nan=False), file=self._out, flush=True)"),
        ("config.py", "print(schema_text(), end='')"),
        ("options.py", "typer.echo(context.get_help())"),  # with the colours of a help
        ("submitting.py", "print(server.log(name), end='', flush=True)"),  # the log of a job, as it is
        ("submitting.py", "print(text, end='', flush=True)"),
    }
    calls = {
        (path.name, ast.unparse(node))
        for folder in ("cli", "api")
        for path in (ROOT / "raffed" / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("print", "typer.echo", "sys.stdout.write")
    }
    assert calls == allowed
