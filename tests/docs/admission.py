"""The table of docs/federation.md: which method admits which option.

`python -m tests.docs.admission` prints it.
"""

from __future__ import annotations

from raffed.methods import METHODS, build_method


def admits(name: str) -> list[str]:
    """One row: the method, and for each option whether it is admitted or why it is not."""
    method = build_method(name, {})
    own = all(one.epochs is not None for one in method.passes)
    return [
        f"`{name}`",
        f"no: {method.why_no_robust_mean}" if method.why_no_robust_mean else "yes",
        _weights(method.mean.fixed, method.mean.by),
        _draws(method.mean.fixed, method.mean.by),
        "no: its own arguments" if own else "yes",
        "on data only" if method.split.personal == "all" else "yes",
    ]


def _weights(fixed: bool, by: str) -> str:
    """Whether other weights of the mean can be asked for, and the usual ones if they are not by samples."""
    if fixed:
        return f"no: needs {by}"
    return "yes" if by == "samples" else f"yes (default: {by})"


def _draws(fixed: bool, by: str) -> str:
    """How participants can be drawn by size: a method that needs its weights cannot count a client twice."""
    if not fixed:
        return "yes"
    return "without replacement" if by == "clients" else "without replacement, `--weighting samples`"


HEADS = ("method", "`--mean`", "`--weighting`", "`--selection size`", "`--epochs-to`", "`--attack`")


def table() -> str:
    """Return the table in Markdown."""
    rows = [HEADS, ["---"] * len(HEADS), *(admits(name) for name in METHODS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table())
