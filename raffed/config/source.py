"""Reads the arguments of a factory from its source text, so that listings load neither torch nor Ray."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from raffed.config.validation import (
    Choices,
    Declaration,
    Doc,
    Length,
    Marker,
    Range,
    Strength,
    Words,
    plain_kind,
)
from raffed.errors import UsageError

MARKERS: dict[str, type[Marker]] = {
    marker.__name__: marker for marker in (Range, Length, Choices, Words, Doc, Strength)
}


class Described(NamedTuple):
    """The declared arguments of a factory, its docstring, and the docstring of its file."""

    arguments: list[Declaration]
    doc: str
    paper: str


def described(module: str, factory: str) -> Described:
    """Read from the source text: importing a method would import torch, which takes seconds."""
    tree = _tree(module)
    defined = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == factory)
    every, keywords = defined.args.defaults, defined.args.kw_defaults
    positional = defined.args.args[len(defined.args.args) - len(every) :]
    # Arguments without a default, such as the shape of images, are not options
    arguments = [
        _declared(Declaration(node.arg, "", ast.unparse(default)), node.annotation, tree)
        for node, default in zip([*positional, *defined.args.kwonlyargs], [*every, *keywords], strict=True)
        if default is not None
    ]
    return Described(arguments, ast.get_docstring(defined) or "", ast.get_docstring(tree) or "")


def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UsageError(f"{module} cannot be found; reinstall raffed")
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _declared(start: Declaration, annotation: ast.expr | None, tree: ast.Module) -> Declaration:
    """What an annotation says. A name stands for what its file assigns to it, or imports from raffed."""
    if annotation is None:
        return start
    if isinstance(annotation, ast.Subscript):
        inside = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if ast.unparse(annotation.value) == "Annotated":
            return _declared(start, inside[0], tree).marked(*map(_marker, inside[1:]))
        if ast.unparse(annotation.value) == "Literal":
            return replace(start, kind="str", choices=tuple(map(ast.literal_eval, inside)))
    if isinstance(annotation, ast.Name):
        assigned = _assigned(annotation.id, tree)
        if assigned is not None:
            return _declared(start, *assigned)
    return replace(start, kind=plain_kind(ast.unparse(annotation)))


def _marker(node: ast.expr) -> Marker | str:
    """`Range(0.0, 1.0)` and so on, built from its literal arguments; the text of anything else."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in MARKERS:
        return ast.unparse(node)
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    return MARKERS[ast.unparse(node.func)](*map(ast.literal_eval, node.args), **named)


def _assigned(name: str, tree: ast.Module) -> tuple[ast.expr, ast.Module] | None:
    """Return the expression that a name stands for, and the file in which it is."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return node.value, tree
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name) and node.module.startswith("raffed."):
                    return ast.Name(alias.name), _tree(node.module)
    return None
