"""What a factory takes, read from its source text, so that asking loads neither torch nor Ray."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import NamedTuple

from raffed.core.errors import UsageError


class Described(NamedTuple):
    """A factory's arguments with their types and defaults as written, its docstring, and that of its file."""

    arguments: list[tuple[str, str, str]]
    doc: str
    paper: str


def described(module: str, factory: str) -> Described:
    """Read from the source text: importing a method would import torch, which takes seconds."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UsageError(f"{module} cannot be found; reinstall raffed")
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    defined = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == factory)
    names = [one.arg for one in defined.args.args]
    kinds = [ast.unparse(one.annotation) if one.annotation else "" for one in defined.args.args]
    arguments = list(zip(names, kinds, map(ast.unparse, defined.args.defaults), strict=True))
    return Described(arguments, ast.get_docstring(defined) or "", ast.get_docstring(tree) or "")
