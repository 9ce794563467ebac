"""Which of torchvision's classification networks raffed trains: `python -m tests.models.torchvision_table`.

It checks all of them, each with the smallest image that it accepts, and writes docs/torchvision-models.md. It
takes about half an hour of one core. With `--only NAME...` the other rows of the page stay as they are. The
largest networks need up to 52 GB of memory; `--large 1000000000` checks them too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raffed.errors import RaffedError
from raffed.models import build
from raffed.models.net import Net
from raffed.models.own.factories import torchvision_names
from raffed.models.own.laws import EXPLODED, Laws
from raffed.models.own.wrapping import ModelInputs, OwnNet
from raffed.testing.models import ModelContract

PAGE = Path(__file__).parents[2] / "docs" / "torchvision-models.md"
SIDES = (8, 14, 16, 32, 48, 64, 75, 96, 112, 128, 224)  # of images that are tried, in this order
CLASSES = 5
LARGE = 150_000_000  # above this number of parameters only the head is looked for, to save memory
NEEDED = 93  # bytes a parameter that the checks take at most, in float64: measured with vgg11, 12.0 GB
RULES = ("returns-scores", "repeats-itself", "known-buffers", "samples-independent", "stackable")
FORWARD_ONLY = "one forward pass"
LOOSE = (
    'A "yes" is weaker than it may look:',
    "",
    f'- A network that says "not tried" had {FORWARD_ONLY} only: the checks take up to {NEEDED} bytes for '
    "each parameter (measured), which was more memory than the machine had free. A run of one of them makes "
    "all checks before it begins. Those above 128 million parameters were checked on a machine with 128 GB "
    "and torch 2.11 (convnext_large needed 17 GB, vit_l_16 25 GB, regnet_y_128gf 52 GB).",
    "- Weights are random, there are five classes, and nothing is trained to an accuracy.",
    "- Only the smallest size of image was tried. A larger one is not in the table.",
    "- The scores of a sample alone and in its batch are equal if they differ by at most 1e-4 + 1e-3 of the "
    "score.",
    "- The gradients of a stack are equal to those of its clients if no number differs by more than 1e-3 of "
    "the largest gradient in float64, or 1e-2 in float32 for networks that make float32 tensors themselves. "
    f"Where the largest gradient is above {EXPLODED:g}, nothing is compared, and the table says yes.",
    "- Only repetition is compared bit for bit.",
)


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


def page(rows: Mapping[str, str]) -> str:
    """Return the page of the documentation from the row of each network."""
    found = {name: verdicts(row) for name, row in rows.items()}
    trained = sum(alone == "yes" for alone, _ in found.values())
    stacks = sum(stacked == "yes" for _, stacked in found.values())
    light = sum(alone == "not tried" for alone, _ in found.values())
    untried = f"Of {light} large ones only the head was looked for, by {FORWARD_ONLY}. " if light else ""
    return "\n".join(
        [
            "# torchvision's networks",
            "",
            f"`--model torchvision:NAME` makes one of torchvision's {len(rows)} classification networks "
            f"with random weights and one score for each class of the data; its head is found automatically. "
            f"{trained} of them pass every check alone, and {stacks} also in stacks (`--cohort`). {untried}"
            f"{len(rows) - trained - light} are refused before any work, with the reason below.",
            "",
            "Each was checked with the smallest square image that it accepts among sides of "
            f"{', '.join(map(str, SIDES))} pixels: a step alone, a step of two stacked clients with the same "
            "gradients, equal bits when repeated, and scores in evaluation that do not depend on the batch. "
            "With such small images BatchNorm may refuse a batch of one sample; raffed says so before a run.",
            "",
            *LOOSE,
            "",
            "`python -m tests.models.torchvision_table` writes this page.",
            "",
            "| network | parameters | head | image | alone | stacked | remark |",
            "|---|---:|---|---:|---|---|---|",
            *rows.values(),
            "",
        ]
    )


def verdicts(row: str) -> tuple[str, str]:
    """Return what a row says of the network alone and in stacks: "yes", "no" or "not tried"."""
    _, _, _, _, _, alone, stacked, *_ = (cell.strip() for cell in row.split("|"))
    return alone, stacked


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of a page by the network's name."""
    rows = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("|")}
    return {name: row for name, row in rows.items() if name in torchvision_names()}


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
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    for name in given.only:
        rows[name] = row_of(line_of(name, large=given.large))
        print(rows[name], file=sys.stderr, flush=True)
    PAGE.write_text(page({name: rows[name] for name in torchvision_names()}), encoding="utf-8")


if __name__ == "__main__":
    main()
