"""The bits of every method, each beside the method's revision, in tests/golden/bits.txt.

    python -m tests.golden.bits usual     prints the lines of the default arguments and of the presets
    python -m tests.golden.bits all       also those of every other choice and flag
    python -m tests.golden.bits write     writes the lines that bits.txt lacks

A line has a method, its revision, a hash, and the argument that is not at its default. The hash is of all
that two rounds of a tiny federation leave: the states of the server and the clients, and the models that are
scored. It is computed with portable bits, so it is the same on every processor, but not for every torch and
NumPy, which the first line names. `write` changes no line: where the bits of a method have changed, raise its
`revision` in raffed/methods/registry.py. After another torch or NumPy, remove bits.txt and write it anew.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import raffed
from raffed.config.validation import Declaration, Value
from raffed.methods import METHODS

FILE = Path(__file__).with_name("bits.txt")
DIVERGED = "diverged"  # in place of a hash
Key = tuple[str, int, str]  # method, revision, argument


def versions() -> str:
    """Return the first line of the file."""
    return f"method, revision, bits, argument; torch {version('torch')}, numpy {version('numpy')}"


def stored() -> dict[Key, str]:
    """Return what the file says, without its first line."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:] if FILE.exists() else []
    return dict(map(parsed, lines))


def parsed(line: str) -> tuple[Key, str]:
    name, revision, bits, *argument = line.split()
    return (name, int(revision), "".join(argument)), bits


def complaints(before: Mapping[Key, str], now: Mapping[Key, str]) -> list[str]:
    """Return what is wrong with the lines of a file, given the bits of today."""
    missing = [
        f"{name} {argument}: bits.txt has no line for revision {revision}; python -m tests.golden.bits write"
        for name, revision, argument in now.keys() - before.keys()
    ]
    changed = [
        f"{name} {argument}: other bits than revision {revision} had; raise it in raffed/methods/registry.py"
        for (name, revision, argument), bits in now.items()
        if before.get((name, revision, argument), bits) != bits
    ]
    return sorted(missing) + changed


def variants(name: str, usual: bool) -> Iterator[dict[str, Value]]:
    """Yield the arguments that are tried: none, and each choice or flag that is not the default."""
    yield {}
    for one in METHODS[name].described().arguments:
        if one.name == "preset" or not usual:
            yield from ({one.name: value} for value in _others(one))


def _others(one: Declaration) -> list[Value]:
    default = ast.literal_eval(one.default) if one.default else None
    values: tuple[Value, ...] = (True, False) if one.kind == "bool" else one.choices
    return [value for value in values if value != default]


def bits(name: str, args: Mapping[str, Value]) -> str:
    """Return twelve digits of the hash of what two rounds leave."""
    from raffed.core.round import evaluated_broadcast
    from raffed.errors import NumericsError
    from tests.tiny import Tiny, leaves, network, short

    tiny = Tiny(short(name, args), net=network(norm=True), rounds=2)
    try:
        tiny.step((0, 1, 2))
        tiny.step((1, 3))
    except NumericsError:
        return DIVERGED
    left = [*tiny.everything(), *leaves(evaluated_broadcast(tiny.method, tiny.server))]
    if tiny.method.personal is not None:
        left += [done.personal_logits(tiny.method.personal, tiny.data[0].x) for done in tiny.last.values()]
    digest = hashlib.sha256()
    for tensor in left:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy(force=True).tobytes())
    return digest.hexdigest()[:12]


def lines(usual: bool) -> Iterator[str]:
    """Yield the lines of today, in a process of portable bits."""
    raffed.portable()
    import torch

    from raffed.core.kernels.portable import use_exact_roots, use_portable_products

    torch.set_num_threads(1)
    use_exact_roots()
    use_portable_products()
    for name, info in METHODS.items():
        for args in variants(name, usual):
            argument = "".join(f" {key}={value}" for key, value in args.items())
            yield f"{name} {info.revision} {bits(name, args)}{argument}"


def write() -> None:
    """Write the file; refuse to if the bits of a line have changed."""
    now, before = list(lines(usual=False)), stored()
    if wrong := complaints({**dict(map(parsed, now)), **before}, dict(map(parsed, now))):
        raise SystemExit("\n".join(wrong))
    FILE.write_text("\n".join([versions(), *now, ""]), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    else:
        for line in lines(usual=sys.argv[1:] == ["usual"]):
            print(line, flush=True)
