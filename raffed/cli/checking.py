"""The commands `raffed verify`, `report` (also with --watch), `bundle`, `replay`, `export` and `doctor`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import raffed
from raffed.api.reporting import reported, write_item_tables
from raffed.cli.config import read_config
from raffed.cli.messages import counted, duration, set_as_recorded, tell_event
from raffed.cli.options import AcceptChangedCode, AsJson, DataRoot, Flags, run_options, text_of
from raffed.cli.screen import Screen, make_screen
from raffed.cli.signals import StopSignals
from raffed.cli.tables import ABSENT, BROKEN, DOUBTFUL, OK, console, line, show
from raffed.errors import UsageError
from raffed.results.storage import fetched, is_url, mirrored, named, unpacked
from raffed.results.text import tell

if TYPE_CHECKING:
    from rich.text import Text

    from raffed.bundles.replaying import Replay
    from raffed.runs.verify_files import Certificate, VerificationCheck

# `raffed report --watch`: the report is written again while runs go on, until Ctrl-C.


EVERY = 5.0  # seconds between two looks at the files, and after which an open page loads itself again
NAP = 0.2  # seconds between two looks for a signal


def watch_report(runs: Sequence[str], place: str, screen: Screen, as_json: bool) -> None:
    """Write the report on `runs` to `place` whenever they change. Ctrl-C ends it with exit code 0.

    Raises:
        UsageError: One of the places is a URL.
    """
    for location in (*runs, place):
        if is_url(location):
            raise UsageError(
                f"{named(location)} is a URL, and --watch needs folders of this machine. Give a folder, or "
                "leave out --watch."
            )
    from raffed.analysis.report import stop_reloading

    places, out = [Path(run) for run in runs], Path(place)
    written: list[Path] = []

    @functools.cache  # a thing is said once, and not again after every change
    def tell_once(text: str) -> None:
        tell(f"raffed: {text}", error=True)

    def write() -> None:
        try:
            with unpacked(places) as here:
                summary = reported(here, out, tell_once, reload=EVERY)
        except UsageError as error:  # the first run may not have begun
            tell_once(f"{error}; waiting")
            return
        if not written or as_json:
            screen.show({"event": "report", "path": named(summary.path), "runs": summary.rows})
        else:
            tell(f"report: {named(summary.path)}, written again at {time.strftime('%H:%M:%S')}")
        written[:] = [summary.path]

    with StopSignals(lambda: None) as signals, contextlib.suppress(KeyboardInterrupt):  # a second signal
        signals.round_done()  # a signal lets a report that is being written come to its end
        before: Snapshot | None = None
        while not signals.asked():
            now = snapshot(places)  # before the report, so that a change meanwhile is seen at the next look
            if now != before:
                write()
                before = now
            nap(signals)
    for path in written:
        stop_reloading(path)  # the page that stays does not load itself again
    stays = named(written[0] if written else out)
    tell(f"raffed: no longer watching; {stays} stays", error=True)
    if signals.code not in (0, 130):
        raise typer.Exit(signals.code)


def nap(signals: StopSignals) -> None:
    """Wait until it is time for the next look, or until a signal has come."""
    until = time.monotonic() + EVERY
    while time.monotonic() < until and not signals.asked():
        time.sleep(NAP)


READ = frozenset({"run.json", "sweep.json", "item.json", "study.json"})  # and the parts of metrics
LEFT_OUT = frozenset({"checkpoints", "vaults"})  # folders of which no report reads anything

Snapshot = frozenset[tuple[str, int, int]]


def snapshot(places: Iterable[Path]) -> Snapshot:
    """Return name, size and time of change of every file at or below `places` that a report reads."""
    files = set()
    for folder, below, names in itertools.chain.from_iterable(map(os.walk, places)):
        below[:] = [name for name in below if name not in LEFT_OUT]
        for path in (Path(folder) / name for name in names if name in READ or name.endswith(".parquet")):
            with contextlib.suppress(OSError):  # it was replaced or merged meanwhile
                files.add((str(path), path.stat().st_size, path.stat().st_mtime_ns))
    return frozenset(files)


SHORT = 16
MARKS = {"ok": OK, "absent": ABSENT, "note": DOUBTFUL, "broken": BROKEN}


def verify(
    place: str,
    *,
    rounds: int = 3,
    author_python: str = "",
    as_json: AsJson = False,
    accept: AcceptChangedCode = False,
) -> None:
    """Check a run's hashes, and execute some of its rounds again.

    The exit code is 0 if everything has the recorded bits, else 1. Nothing in the folder is changed.

    Args:
        place (RUN): Folder or URL of a run.
        rounds: Number of rounds to execute again, at most those of the run.
        author_python: Interpreter that executes an author's engine; without it: this one.
    """
    with fetched(place, whole=True) as run_folder:
        set_as_recorded(run_folder)
        watched = sys.stdout.isatty() and not as_json
        certificate = raffed.verify(
            run_folder, rounds, progress=watched, accept_changed_code=accept, author_python=author_python
        )
        if as_json:
            tell_event({"event": "certificate", **certificate.as_dict(), "folder": named(run_folder)})
        else:
            _show_certificate(certificate)
    if not certificate.ok:
        raise typer.Exit(1)


def _show_certificate(certificate: Certificate) -> None:
    """Show one line per file, one line for all equal rounds of a kind, and every difference."""
    done, state = counted(certificate.rounds_done, "round"), certificate.state
    tell(f"{named(certificate.folder)}: {certificate.run_id}, {state}, {done}")
    rows = [_checked(check.what, check) for check in certificate.checks if check.round is None]
    rows += _grouped([check for check in certificate.checks if check.round is not None])
    show(("what", "recorded", "found", ""), rows, title="Certificate")
    wrong = sum(not check.ok for check in certificate.checks)
    checks, executed = counted(len(certificate.checks), "check"), counted(len(certificate.rounds), "round")
    count = f"{checks}, {executed} executed again, {duration(certificate.seconds)}"
    if certificate.ok and not certificate.rounds_done:
        tell(f"NOTHING TO EXECUTE: the run has not recorded a round yet; {checks} of its files passed")
    else:
        so_far = "" if state == "finished" else f" so far, the run is not finished ({state})"
        tell(f"VERIFIED{so_far}: {count}" if certificate.ok else f"NOT VERIFIED: {count}, {wrong} differ")
    for note in (*certificate.segments, *certificate.notes):
        tell(note)
    if certificate.differs:
        explained = " (may explain other bits)" if wrong else ""
        tell(f"versions or the machine differ: {', '.join(certificate.differs)}{explained}")


def _checked(what: str, check: VerificationCheck) -> tuple[str | Text, ...]:
    return what, check.recorded[:SHORT], check.found[:SHORT], OK if check.ok else BROKEN


def _grouped(again: Sequence[VerificationCheck]) -> Iterator[tuple[str | Text, ...]]:
    for what in dict.fromkeys(check.what for check in again):
        same = [check for check in again if check.what == what and check.ok]
        if same:
            numbers = ranges([check.round or 0 for check in same])
            yield _checked(f"{what}, round {numbers} again", same[-1])
        for check in again:
            if check.what == what and not check.ok:
                yield _checked(f"{what}, round {check.round} again", check)


def ranges(numbers: Sequence[int]) -> str:
    """Write [1, 2, 3, 11] as "1-3, 11"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def report(
    runs: list[str], *, place: str, protocols: bool = False, as_json: AsJson = False, watch: bool = False
) -> None:
    """Summarise runs: tables, curves, one HTML file.

    Accuracies are means over seeds with 95 % t-intervals. The HTML file needs no network. The exit code is 1
    if a sweep.json is damaged. With --watch an open page loads itself again every 5 seconds.

    Args:
        runs (RUNS...): Folders or URLs of runs, or of folders that hold runs.
        place (--out PLACE): Folder for report.html, summary.md, summary.csv and curves.png.
        protocols: Also show what each method has by the protocols that papers have: of which model, on which
            test, after which round. report.html holds it, too.
        watch: Write the report again whenever runs change, until Ctrl-C.
    """
    with make_screen(as_json) as screen, contextlib.ExitStack() as stack:
        if watch:
            watch_report(runs, place, screen, as_json)
            return
        out = stack.enter_context(mirrored(place))
        places = [stack.enter_context(fetched(run)) for run in runs]
        whole = write_report(stack.enter_context(unpacked(places)), out, screen, protocols)
    if not whole:
        raise typer.Exit(1)


def write_report(runs: Sequence[Path], out: Path, screen: Screen, protocols: bool = False) -> bool:
    """Write the report on `runs`, and on the sweeps and reproductions among them, to `out`, and show its
    summary, and with `protocols` what each method has by every protocol.

    Returns whether every sweep could be read.
    """
    written = reported(runs, out, lambda text: tell(f"raffed: {text}", error=True))
    screen.show({"event": "report", "path": named(written.path), "runs": written.rows})
    if written.differences or written.note:
        tables = {title: frame.to_dict("records") for title, frame in written.differences.items()}
        screen.show({"event": "differences", "tables": tables, "note": written.note})
    for title, frame in written.protocols.items() if protocols else ():
        event = {"event": "table", "path": named(written.path), "title": title}
        screen.show({**event, "rows": frame.to_dict("records")}, words={"Method"})
    return written.whole


def write_paper_item(path: Path, screen: Screen) -> None:
    """Write the table of a reproduction beside its item.json, and show it."""
    tables = write_item_tables(path)
    if isinstance(tables, str):
        tell(f"raffed: {tables}: no run is finished yet, so there is nothing to compare", error=True)
        return
    for title, table in tables.tables:
        rows = [dict(zip(table.titles, line, strict=True)) for line in table.rows]
        event = {"event": "table", "path": str(tables.path), "title": title, "rows": rows}
        screen.show(event, words=table.left_aligned)
    for verdict in tables.verdicts:
        screen.show({"event": "verdict", **verdict})
    if tables.first:
        tell(tables.first, error=True)


@run_options(without=["data.root"])
def doctor(
    flags: Flags,
    file: Path | None = None,
    *,
    data_root: DataRoot = None,
    ray: bool = False,
    as_json: AsJson = False,
) -> None:
    """Look at this machine and say what to do about what is wrong.

    If a run is given (by its file or its options), a few of its clients are trained as well, to say what one
    costs and how to place them. The exit code is 1 if something essential is broken, or 2 if only Ray is.

    Args:
        file (EXPERIMENT.toml): TOML file of a run to measure.
        ray: Also start a small Ray, which takes seconds.
    """
    from raffed.runs.diagnostics import RAY_STARTS, examine, sized

    findings = examine(data_root, ray, text_of(flags, "runtime.address"))
    if file or flags.keys() - {"runtime.address"}:
        where = {} if data_root is None else {"data.root": data_root}
        findings = itertools.chain(findings, sized(read_config(file, {**flags, **where})))
    broken = []
    for finding in findings:
        broken += [finding.what] * (finding.state == "broken")
        if as_json:
            tell_event({"event": "finding", **vars(finding)})
        else:
            console().print(line(MARKS[finding.state], finding.what, finding.found, finding.advice))
    if not as_json:
        things = f"{counted(len(broken), 'essential thing')} {'is' if len(broken) == 1 else 'are'}"
        tell(f"{things} broken: {', '.join(broken)}" if broken else "raffed can run here")
    if broken:
        raise typer.Exit(2 if broken == [RAY_STARTS] else 1)


def export(
    place: str,
    *,
    out: Path | None = None,
    onnx: Path | None = None,
    client: int | None = None,
    best: bool = False,
    accept: AcceptChangedCode = False,
) -> None:
    """Write a run's final weights, by the names of your own class.

    Args:
        place (RUN): Folder or URL of a finished run.
        out (FILE): New file for the state_dict, such as model.pt or model.safetensors.
        onnx (FILE): New file for the network as ONNX (raffed[onnx]).
        client: A client's personalised model in place of the global one.
        best: The weights of the round that was best on validation data.
    """
    from raffed.runs.saved_model import export as exported

    for path in exported(place, out, onnx, client, best, accept):
        tell(str(path))


def bundle(place: str, *, out: Path, license: str = "", as_json: AsJson = False) -> None:
    """Write a run, a comparison, a sweep or a reproduced table into one zip for reviewers.

    It has configurations, partitions, rows, hashes, versions of packages, own code and, unless it is a single
    run, report.html, but no data and no weights. Texts are not searched for names or secrets, so read it
    before you publish it. The same results give the same bytes.

    Args:
        place (PLACE): Folder or URL of a run, a comparison, a sweep or a reproduced table.
        out (FILE): New file for the zip, such as map.zip.
        license: Terms of use of the results, as a text or a URL.

    Examples:

        raffed bundle runs/a --out a.zip

        raffed bundle sweeps/fedmr --out fedmr.zip --license https://creativecommons.org/licenses/by/4.0/
    """
    packed = raffed.bundle(place, out, license=license)
    if as_json:
        tell_event({"event": "bundle", **asdict(packed), "path": str(packed.path)})
        return
    what = f"{counted(len(packed.runs), 'run')}, {counted(packed.files, 'file')}, {packed.size:,} bytes"
    tell(f"{packed.path}: {what}")
    tell(f"sha256 {packed.sha256}")
    for path in packed.left_out:
        tell(f"left out: {named(path)}")


def replay(
    archive: Path,
    *,
    out: Path,
    rounds: Annotated[int, typer.Option(min=0)] = 0,
    run: list[str] | None = None,
    data_root: DataRoot = None,
    trust_code: bool = False,
    as_json: AsJson = False,
) -> None:
    """Execute the runs of a bundle again, and say what is equal.

    The exit code is 0 if everything has the recorded bits, 1 if something differs, and 2 if the bundle is
    refused. It may come from a stranger: it is checked before anything is written, and nothing is downloaded.

    Args:
        archive (ZIP): File that `raffed bundle` wrote.
        out (FOLDER): New folder for the recorded and the new results.
        rounds: Number of rounds to execute of each run; 0: all.
        run (NAME): Only this run of the bundle; repeat for more.
        trust_code: Execute the code that the bundle brings. Read it first.

    Examples:

        raffed replay a.zip --out again

        raffed replay fedmr.zip --out again --run fedmr/final/seed-0 --rounds 5
    """
    replayed = raffed.replay(
        archive,
        out,
        rounds=rounds,
        only=run or (),
        data_root=data_root,
        trust_code=trust_code,
        progress=sys.stdout.isatty() and not as_json,
    )
    if as_json:
        tell_event({"event": "replay", **replayed.as_dict()})
    else:
        _show_replay(replayed)
    if not replayed.ok:
        raise typer.Exit(1)


def _show_replay(replayed: Replay) -> None:
    """Show a table of what was compared for each run, and what may explain differences."""
    rows = [
        (run.name, *_checked(check.what + ("" if check.round is None else f", round {check.round}"), check))
        for run in replayed.runs
        for check in run.checks
    ]
    show(("run", "what", "recorded", "found", ""), rows, title="Replay")
    equal = sum(run.ok for run in replayed.runs)
    rounds = sum(run.rounds for run in replayed.runs)
    runs, spent = counted(len(replayed.runs), "run"), duration(replayed.seconds)
    said = "EQUAL" if replayed.ok else "NOT EQUAL"
    tell(f"{said}: {equal} of {runs}, {counted(rounds, 'round')}, {spent}")
    for run in replayed.runs:
        for note in run.notes:
            tell(f"{run.name}: {note}")
        if run.differs:
            explained = "" if run.ok else " (may explain other bits)"
            tell(f"{run.name}: versions differ: {', '.join(run.differs)}{explained}")
    tell(f"raffed report {replayed.folder}/recorded --out {replayed.folder}/report shows what was recorded")
