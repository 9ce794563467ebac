"""The parts of a report on a paper's table and on a sweep."""

from __future__ import annotations

from .load import Runs
from .page import notice, text
from .reproductions import Reproduction, paper_sheet, verdicts
from .sheet import as_html
from .sweeps import NOTES, Sweep, tuning_sheet

VERDICTS = {
    "full": "A number <em>agrees</em> if it differs from the printed one by no more than the tolerance ({tolerance:g}) or our "
    "95 % interval; else it is <em>higher</em> or <em>lower</em>.",
    "proxy": "Smaller networks, less data, fewer rounds: absolute numbers are not comparable. Compared is the sign of the "
    "difference to {baseline}, paired by seed: <em>not separated</em> where the 95 % interval holds 0, <em>no claim</em> where "
    "the paper's own difference is below {tolerance:g}.",
    "smoke": "Seconds of training on digits: that every cell runs is all this shows.",
}


def paper_section(item: Reproduction, runs: Runs) -> str:
    """A table of a paper beside ours, with what was left out."""
    about = item.about
    counts = ", ".join(f"{count} {word}" for word, count in verdicts(item, runs).items() if word != "–")
    reading = VERDICTS[about["scale"]].format(tolerance=about["tolerance"], baseline=text(about["baseline"]))
    body = f"<h2>{text(item.title)}</h2>\n<p class=\"soft\">{text(about['unit'])}. {reading} {text(about['note'])}</p>\n"
    body += f"<p><b>{text(counts)}</b></p>\n" if counts else ""
    body += f'<div class="scroll">{as_html(paper_sheet(item, runs))}</div>\n'
    return body + notice("Left out", [(name, why) for name, _, why in (one.partition(": ") for one in about["left_out"])])


def sweep_section(sweep: Sweep, runs: Runs) -> str:
    """What was chosen, at what cost."""
    body = f"<h2>Tuning · {text(sweep.folder.name)}</h2>\n<p class=\"soft\">{text(NOTES[sweep.protocol])}</p>\n"
    return body + f'<div class="scroll">{as_html(tuning_sheet(sweep, runs))}</div>\n'
