"""What a factory takes, read from its source text, so that asking loads neither torch nor Ray."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import NamedTuple

from raffed.errors import UsageError


class Described(NamedTuple):
    """A factory's arguments with their types and defaults as written, its docstring, and that of its file.

    For the type of an argument with choices stand the choices: `kd | mmd`.
    """

    arguments: list[tuple[str, str, str]]
    doc: str
    paper: str


def described(module: str, factory: str) -> Described:
    """Read from the source text: importing a method would import torch, which takes seconds."""
    tree = _tree(module)
    defined = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == factory)
    names = [one.arg for one in defined.args.args]
    kinds = [_kind(one.annotation, tree) if one.annotation else "" for one in defined.args.args]
    arguments = list(zip(names, kinds, map(ast.unparse, defined.args.defaults), strict=True))
    return Described(arguments, ast.get_docstring(defined) or "", ast.get_docstring(tree) or "")


def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UsageError(f"{module} cannot be found; reinstall raffed")
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _kind(annotation: ast.expr, tree: ast.Module) -> str:
    """An annotation as text; a Literal, or a name for one that this file assigns or imports from raffed,
    as its choices.
    """
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        chosen = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return " | ".join(
            str(one.value) if isinstance(one, ast.Constant) else ast.unparse(one) for one in chosen
        )
    if isinstance(annotation, ast.Name):
        for node in tree.body:
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [
                annotation.id
            ]:
                return _kind(node.value, tree)
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for one in node.names:
                    if annotation.id == (one.asname or one.name) and node.module.startswith("raffed."):
                        return _kind(ast.Name(one.name), _tree(node.module))
    return ast.unparse(annotation)
