"""Whether the tests find faults that change results and say nothing.

mutations.toml lists the faults. Each is made in a copy of the working tree, and the tests run there until one
fails: first the files that probably find it, then the fast suite.

    python -m benchmarks.mutations --list
    python -m benchmarks.mutations --check            # each mutated module compiles and can be imported
    python -m benchmarks.mutations --out FILE         # one JSON line for each; a second start goes on
    python -m benchmarks.mutations --only NAME        # those whose names contain this
    python -m benchmarks.mutations --hinted           # only the files that probably find it

A test counts only if it passes again once the fault is undone. The suite of another commit is asked in a
checkout of that commit, with this folder copied into it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
MUTATED = ("raffed", "analysis")  # the folders in which a mutation may be
OWN_TEST = "test_mutations.py"  # it reads the table, and so it would find every mutation
QUICK = ("-m", "not slow and not browser and not apart")
FAST = (*QUICK, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")  # as CI calls `make test`
LONGEST = 3600  # seconds of a run of the tests; a fault that makes a test endless is found by that


@dataclass(frozen=True)
class Mutation:
    """One fault. mutations.toml says what the fields mean."""

    name: str
    room: str
    why: str
    old: str
    new: str
    hints: tuple[str, ...]

    def made_in(self, sources: Mapping[Path, str]) -> tuple[Path, str]:
        """Return the file that the fault changes, and its changed text.

        Args:
            sources: Path → text of every file in which it may be.

        Raises:
            ValueError: The old text does not stand there exactly once.
        """
        places = [path for path, text in sources.items() for _ in range(text.count(self.old))]
        if len(places) != 1:
            raise ValueError(
                f"{self.name}: its old text stands {len(places)} times in {' and '.join(MUTATED)}, and must "
                "stand there once; say the same fault in the words of today's code"
            )
        return places[0], sources[places[0]].replace(self.old, self.new)

    def hinted(self, root: Path) -> list[str]:
        """Return the files of tests that probably find it, wherever they lie below tests/."""
        return [str(path) for hint in self.hints for path in sorted((root / "tests").rglob(f"{hint}.py"))]


def mutations() -> list[Mutation]:
    """Return the mutations of the table."""
    rows = tomllib.loads(TABLE.read_text())["mutation"]
    return [Mutation(**{**row, "hints": tuple(row["hints"])}) for row in rows]


def sources(root: Path) -> dict[Path, str]:
    """Return path → text of every file in which a mutation may be."""
    return {path: path.read_text() for folder in MUTATED for path in sorted((root / folder).rglob("*.py"))}


def git(root: Path, *words: str) -> str:
    """Return what git prints in a repository."""
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout


class Copy:
    """A copy of the working tree in a temporary folder, with compiled kernels, which processes import first.

    It is a repository of its own, because some tests ask git. Changes that are not committed are copied too.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self._folder, self._cache = folder, folder / "cache"
        self.passes_never: list[str] = []  # tests that fail without any mutation
        git(ROOT, "clone", "--quiet", "--shared", str(ROOT), str(self.root))
        changed = git(ROOT, "ls-files", "-z", "--modified", "--others", "--exclude-standard").split("\0")
        kernels = [str(path.relative_to(ROOT)) for path in (ROOT / "raffed").rglob("*.so")]
        for name in (*filter(None, changed), *kernels):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():
                shutil.copy2(ROOT / name, self.root / name)
            else:
                (self.root / name).unlink(missing_ok=True)

    def python(self, *words: str, seconds: float = LONGEST) -> tuple[int, str]:
        """Run Python in the copy. Return its exit code and what it printed; the code is -1 if it did not end.

        Its children import the copy as well, because they inherit PYTHONPATH.
        """
        surroundings = {**os.environ, "PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1"}
        printed = self._folder / "printed"  # not a pipe, which a process that is left over would hold open
        with printed.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.root,
                env=surroundings,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that all its processes can be ended
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return code, printed.read_text(errors="replace")

    @contextlib.contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[tuple[Path, str]]:
        """Make a fault in the copy while the block runs. Yields the changed file and its text from before."""
        path, text = mutation.made_in(sources(self.root))
        before = path.read_text()
        path.write_text(text)
        try:
            yield path, before
        finally:
            path.write_text(before)

    def failing(self, asked: Sequence[str]) -> list[str]:
        """Run tests until one fails, and return those that failed. Tests that never pass are left out."""
        shutil.rmtree(self._cache, ignore_errors=True)
        left_out = [f"--deselect={test}" for test in self.passes_never]
        code, printed = self.python(
            *("-m", "pytest", "-x", "-q", f"--ignore-glob=*{OWN_TEST}", "-o", f"cache_dir={self._cache}"),
            *left_out,
            *asked,
        )
        failed = self._cache / "v" / "cache" / "lastfailed"  # pytest's own record of what failed
        if failed.exists():
            return list(json.loads(failed.read_text()))
        if code in (0, 5):  # all passed, or there was nothing to run
            return []
        last = (printed.strip().splitlines() or ["nothing was printed"])[-1]
        if code == 4:  # pytest did not understand what it was asked, so no test was run
            raise RuntimeError(f"pytest cannot be called so: {last}")
        return [f"pytest itself: exit code {code}, {last}"]

    def finder(self, mutation: Mutation, asked: Sequence[str]) -> str:
        """Return a test that fails because of a fault, and passes without it; empty if none does."""
        while True:
            with self.mutated(mutation) as (path, before):
                failed = self.failing(asked)
                if not failed or failed[0].startswith("pytest itself"):
                    return "".join(failed[:1])
                path.write_text(before)
                anyway = [test for test in failed if self.failing([test])]
            if found := [test for test in failed if test not in anyway]:
                return found[0]
            self.passes_never += anyway


def checked(copy: Copy, chosen: Sequence[Mutation]) -> str:
    """Return what is wrong with the mutated modules; empty if each compiles and all can be imported."""
    found, changed = sources(copy.root), {}
    for mutation in chosen:
        path, text = mutation.made_in(found)
        compile(text, str(path), "exec")
        changed[path] = changed.get(path, found[path]).replace(mutation.old, mutation.new)
    for path, text in changed.items():
        path.write_text(text)
    names = [".".join(path.relative_to(copy.root).with_suffix("").parts) for path in changed]
    whole = [name if name.startswith("raffed.") else f"raffed.{name}" for name in names]
    places = {name: str(path) for name, path in zip(whole, changed, strict=True)}
    code, printed = copy.python(
        "-c",
        f"import importlib\nfor name, path in {places!r}.items():\n"
        "    assert importlib.import_module(name).__file__ == path, name",
    )
    return "" if code == 0 else printed


def asked_of(copy: Copy, mutation: Mutation, only_hinted: bool) -> dict[str, object]:
    """Return the record of one mutation: whether a test finds it, which one, and after how many seconds."""
    began = time.monotonic()
    hinted, suite = mutation.hinted(copy.root), "hinted"
    test = copy.finder(mutation, [*hinted, *QUICK]) if hinted else ""
    if not test and not only_hinted:
        test, suite = copy.finder(mutation, FAST), "fast"
    return {
        "name": mutation.name,
        "room": mutation.room,
        "found": bool(test),
        "by": test,
        "suite": suite,
        "seconds": round(time.monotonic() - began, 1),
        "commit": git(ROOT, "describe", "--always", "--dirty=+", "--exclude=*").strip(),
    }


def recorded(out: Path | None, only_hinted: bool) -> dict[str, dict[str, object]]:
    """Return name → record of the mutations that need not be asked again."""
    lines = out.read_text().splitlines() if out is not None and out.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["name"]: row for row in rows if row["found"] or row["suite"] == "fast" or only_hinted}


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line asks. Return 1 if a mutation was not found or cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutations", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--list", action="store_true", help="print the mutations")
    parser.add_argument("--check", action="store_true", help="only import each mutated module")
    parser.add_argument("--only", default="", metavar="NAME", help="those whose names contain NAME")
    parser.add_argument("--hinted", action="store_true", help="only the files that probably find it")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON lines; what it holds is not repeated")
    given = parser.parse_args(words)
    chosen = [one for one in mutations() if given.only in one.name]
    if given.list:
        print(*(f"{one.room:12} {one.name}" for one in chosen), sep="\n")
        return 0
    done = recorded(given.out, given.hinted)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, and the copy removed
    with tempfile.TemporaryDirectory(prefix="raffed-mutations-") as folder:
        copy = Copy(Path(folder))
        if given.check:
            wrong = checked(copy, chosen)
            print(wrong or f"{len(chosen)} mutations compile, and their modules can be imported")
            return bool(wrong)
        for mutation in chosen:
            if mutation.name in done:
                continue
            done[mutation.name] = record = asked_of(copy, mutation, given.hinted)
            print(json.dumps(record, ensure_ascii=False), flush=True)
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
        if copy.passes_never:
            print("fail without any mutation:", *copy.passes_never, sep="\n  ")
    found = Counter(one.room for one in chosen if done[one.name]["found"])
    print(", ".join(f"{room} {found[room]} of {n}" for room, n in Counter(m.room for m in chosen).items()))
    return int(sum(found.values()) < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
