"""Compare the size of the project with the budget of .ci/budget.toml. A number above its limit fails.

Code lines are the lines that hold a statement or an expression, as `ast` and `tokenize` see them: no
docstrings, comments or blank lines. Raising a limit is a decision: its reason goes into docs/decisions.md.
`python .ci/budget.py` prints the table, and its exit code is 1 if a number is above its limit.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / ".ci" / "budget.toml"
VAGUE = {"one", "found", "own", "made"}
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines of a module that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        number
        for token in tokens
        if token.type not in SILENT
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def import_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold an import or `__all__`."""
    return {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom) or _names_all(node)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _names_all(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def vague_names(source: str) -> int:
    """Return how many variables and arguments have a name that does not say what they hold (VAGUE)."""
    nodes = list(ast.walk(ast.parse(source)))
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    arguments = [node.arg for node in nodes if isinstance(node, ast.arg)]
    return sum(name in VAGUE for name in [*stored, *arguments])


def tracked(folder: str) -> list[Path]:
    """Return the Python files of a folder that git tracks or would add."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = {ROOT / name for name in listed.split("\0") if name.endswith(".py")}
    return sorted(path for path in paths if path.is_file())


def measured() -> dict[str, int]:
    """Return today's numbers, by the names that .ci/budget.toml has for their limits."""
    numbers: dict[str, int] = {"vague_names": 0}
    for folder in ("raffed", "analysis", "reproductions"):
        sources = [path.read_text(encoding="utf-8") for path in tracked(folder)]
        numbers[f"{folder}.code_lines"] = sum(len(code_lines(source)) for source in sources)
        numbers[f"{folder}.files"] = len(sources)
        numbers["vague_names"] += sum(vague_names(source) for source in sources)
        if folder == "raffed":
            numbers["raffed.import_lines"] = sum(len(import_lines(source)) for source in sources)
    tests = tracked("tests")
    numbers["tests.lines"] = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests)
    return {**numbers, **_command_line()}


def _command_line() -> dict[str, int]:
    """Return the number of commands, and that of the options of `raffed run`."""
    program = (
        "import json, typer; from raffed.cli.app import app; "
        "commands = typer.main.get_command(app).commands; "
        "print(json.dumps([len(commands), len(commands['run'].params)]))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands, options = json.loads(shown.stdout)
    return {"commands": commands, "run.options": options}


def main() -> int:
    """Print each number beside its limit, and return 1 if one is above it."""
    limits: dict[str, int] = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    numbers = measured()
    if limits.keys() != numbers.keys():
        print(f"{LIMITS.name} must have exactly the limits {', '.join(numbers)}", file=sys.stderr)
        return 1
    for name, number in numbers.items():
        said = "ABOVE THE BUDGET" if number > limits[name] else ""
        print(f"{name:<26}{number:>8,}{limits[name]:>8,}  {said}".rstrip())
    return int(any(number > limits[name] for name, number in numbers.items()))


if __name__ == "__main__":
    sys.exit(main())
