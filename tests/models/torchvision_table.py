"""Which of torchvision's classification networks raffed trains: `python -m tests.models.torchvision_table`.

It checks all of them, each with the smallest image that it accepts, and writes the table of
docs/torchvision-models.md; the text above it is written by hand. This takes about half an hour of one core.
With `--only NAME...` the other rows stay as they are. The largest networks need up to 52 GB of memory;
`--large 1000000000` checks them too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.errors import RaffedError
from raffed.models import build
from raffed.models.net import Net
from raffed.models.own.factories import torchvision_names
from raffed.models.own.laws import Laws
from raffed.models.own.wrapping import ModelInputs, OwnNet
from raffed.testing.inputs import ModelContract

PAGE = Path(__file__).parents[2] / "docs" / "torchvision-models.md"
SIDES = (8, 14, 16, 32, 48, 64, 75, 96, 112, 128, 224)  # of images that are tried, in this order
CLASSES = 5
LARGE = 150_000_000  # above this number of parameters only the head is looked for, to save memory
NEEDED = 93  # bytes a parameter that the checks take at most, in float64: measured with vgg11, 12.0 GB
RULES = ("returns-scores", "repeats-itself", "known-buffers", "samples-independent", "stackable")
FORWARD_ONLY = "one forward pass"


@dataclass(frozen=True)
class Line:
    """What was found about one network.

    Attributes:
        name: Its name in torchvision.
        parameters: Number of its parameters with five classes.
        head: Name of the layer that makes the scores.
        side: Height and width of the smallest image that was tried and accepted, or 0.
        laws: Law → "" if it holds, otherwise the reason. Empty if only one forward pass was made.
        refused: Why it is refused altogether, or "".
    """

    name: str
    parameters: int = 0
    head: str = ""
    side: int = 0
    laws: tuple[tuple[str, str], ...] = ()
    refused: str = ""

    @property
    def trains(self) -> bool:
        """Whether it trains alone and repeats the same bits."""
        return not self.refused and all(not why for law, why in self.laws if law != "stackable")


def line_of(name: str, sides: tuple[int, ...] = SIDES, large: int = LARGE) -> Line:
    """Check one network with the smallest image that it accepts.

    Args:
        name: Its name in torchvision.
        sides: Sides of the images that are tried, in this order.
        large: Number of parameters above which only the head is looked for.
    """
    why = ""
    for side in sides:
        inputs = ModelInputs((3, side, side))
        try:
            net = build(f"torchvision:{name}", inputs.shape, CLASSES, 0)
            found = _checked(name, net, inputs, large)
        except RaffedError as error:
            why = str(error)
            if "no nn.Linear" in why or "returns a" in why:
                break  # no size of image changes that
            continue
        return found
    return Line(name, refused=why.removeprefix(f"torchvision:{name}").lstrip(": "))


def _checked(name: str, net: Net, inputs: ModelInputs, large: int) -> Line:
    count = sum(one.numel() for one in net.parameters())
    head = net.user_head if isinstance(net, OwnNet) else "head"
    side = inputs.shape[1]
    if count > large:
        return Line(name, count, head, side)
    laws = Laws(net, name, inputs, CLASSES)
    laws.check_scores()  # images that it does not accept are refused here
    contract = ModelContract(lambda seed: net, inputs, CLASSES, name)
    return Line(name, count, head, side, tuple((rule, contract.outcome(rule, name).why) for rule in RULES))


def row_of(one: Line) -> str:
    """Return the row of the page about one network."""
    laws = dict(one.laws)
    if one.refused:
        return f"| {one.name} | | | | no | no | {_short(one.refused)} |"
    if not laws:
        begun = f"| {one.name} | {one.parameters:,} | {one.head} | {one.side} |"
        needed = f"the checks need about {one.parameters * NEEDED / 1e9:.0f} GB of memory"
        return f"{begun} not tried | not tried | {FORWARD_ONLY}; {needed} |"
    remark = next((_short(why) for why in laws.values() if why), "")
    alone, stacked = ("yes" if ok else "no" for ok in (one.trains, one.trains and not laws["stackable"]))
    return f"| {one.name} | {one.parameters:,} | {one.head} | {one.side} | {alone} | {stacked} | {remark} |"


def _short(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:200]


def main(argv: Sequence[str] | None = None) -> None:
    """Check all networks, or those of `--only`, and write the page. A line is printed for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=torchvision_names(), metavar="NAME")
    parser.add_argument(
        "--large",
        type=int,
        default=LARGE,
        help=f"parameters above which there is {FORWARD_ONLY} only (default: {LARGE:,})",
    )
    given = parser.parse_args(argv)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for name in given.only:
        row = row_of(line_of(name, large=given.large))
        lines = [row if line.startswith(f"| {name} |") else line for line in lines]
        print(row, file=sys.stderr, flush=True)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
