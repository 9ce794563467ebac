"""What `raffed submit --working-dir` sends: a folder with everything planted in it that should stay here,
and the exact list.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from raffed.errors import UsageError
from raffed.runtime.job_file_rules import DATA
from raffed.runtime.job_files import files_below, packed
from raffed.runtime.ray_backend import jobs
from raffed.runtime.ray_backend.jobs import JobOrder
from raffed.runtime.secret_files import secret_contents
from tests.cli.conftest import Cli
from tests.cli.planted import (
    CONTENTS,
    GITHUB,
    MACHINE,
    OUT,
    SECRETS,
    TRAVELS,
    NoServer,
    names,
    plant,
)


def test_exactly_the_files_of_the_project_are_in_the_package(planted: Path, tmp_path: Path) -> None:
    files = files_below(planted)
    assert names(packed(files, tmp_path)) == sorted(TRAVELS)
    withheld = [one.name for one in files.withheld]
    for name in [*SECRETS, *CONTENTS, *MACHINE, "utf16.txt"]:
        assert any(name == one or name.startswith(one) for one in withheld if one), (
            f"{name} is not named as staying here"
        )


def test_ray_s_own_packaging_sends_exactly_what_was_listed(planted: Path, tmp_path: Path) -> None:
    """Ray's upload as `submit_job` calls it, with a place to send to that is a dictionary."""
    from ray._private.runtime_env.packaging import create_package
    from ray._private.runtime_env.working_dir import upload_working_dir_if_needed

    arrived: dict[str, list[str]] = {}

    def take(path: str, excludes: list[str] | None = None, is_file: bool = False) -> None:
        package = Path(path)
        if not is_file:
            package = tmp_path / "made-by-ray.zip"
            create_package(path, package, include_gitignore=True, excludes=excludes)
        arrived["package"] = names(package)

    environment = JobOrder(["x"], packed(files_below(planted), tmp_path)).runtime_env()
    upload_working_dir_if_needed(environment, include_gitignore=True, upload_fn=take)
    assert arrived["package"] == sorted(TRAVELS)
    assert environment["working_dir"].startswith("gcs://")


def test_what_is_listed_is_what_is_packed_with_its_bytes(cli: Cli, planted: Path) -> None:
    done = cli("submit", "--dry-run", "--working-dir", planted, "run", planted / "exp.toml", *OUT)
    assert done.code == 0, done.err
    lines = [line.split(None, 3) for line in done.out.splitlines() if line.startswith("sent: ")]
    listed = {line[3]: int(line[1].replace(",", "")) for line in lines}
    assert listed == {name: len(text.encode()) for name, text in TRAVELS.items()}
    assert f"sent in all: {len(TRAVELS)} files" in done.out
    assert "stays here: .env.local  (looks like a secret by its name)" in done.out
    assert "stays here: pkg/deploy.py  (holds what looks like a token of GitHub)" in done.out
    assert GITHUB not in done.out
    assert f"stays here: pkg/deep/x.npz  ({DATA})" in done.out


def test_a_link_travels_with_the_file_that_it_leads_to_whatever_the_two_are_called(
    planted: Path, tmp_path: Path
) -> None:
    """A text may hold an example of a login that a file of settings may not."""
    (planted / "link-in.ini").symlink_to("README.md")
    found = files_below(planted)
    with zipfile.ZipFile(packed(found, tmp_path)) as archive:
        assert archive.read("link-in.ini").decode() == TRAVELS["README.md"]


def test_a_dry_run_calls_no_server(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JobSubmissionClient", NoServer)
    done = cli("submit", "--dry-run", "run", *OUT)
    assert done.code == 0
    assert "sent: no file, the command alone" in done.out


LINKS: dict[str, tuple[str, str]] = {  # link → (what it leads to, how it is named)
    "out.txt": ("../outside/secret.txt", "leads out"),
    "out": ("../outside", "leads out"),
    "pkg/up": ("../..", "leads out"),
    "to-env.txt": (".env", "does not travel"),
    "to-git": (".git", "does not travel"),
    "to-git-config.txt": (".git/config", "does not travel"),
    "pkg/round": ("..", "a folder that it lies in"),
    "pkg/self": ("self", "does not travel"),
    "nothing": ("nowhere", "does not travel"),
    ".hidden-link": ("exp.toml", "hidden"),
    "to-ignored.txt": ("ignored/x.txt", "does not travel"),
}


def test_a_link_sends_nothing_that_would_not_travel_without_it(planted: Path, tmp_path: Path) -> None:
    plant(tmp_path / "outside", {"secret.txt": "x"})
    for name, (target, _) in LINKS.items():
        (planted / name).symlink_to(target)
    files = files_below(planted)
    assert [one.name for one in files.sent] == sorted(TRAVELS)
    said = {one.name: one.reason for one in files.withheld}
    for name, (_, why) in LINKS.items():
        assert why in said[name]


def test_a_link_to_what_travels_sends_it_under_both_names(planted: Path, tmp_path: Path) -> None:
    (planted / "again.toml").symlink_to("exp.toml")
    (planted / "deep" / "er" / "code").symlink_to("../../pkg")
    sent = {one.name for one in files_below(planted).sent}
    assert sent - set(TRAVELS) == {
        "again.toml",
        *(f"deep/er/code/{name[4:]}" for name in TRAVELS if name.startswith("pkg/")),
    }


def test_a_working_folder_that_is_a_link_is_the_folder_it_leads_to(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(planted)
    assert [one.name for one in files_below(tmp_path / "link").sent] == sorted(TRAVELS)


def test_pipes_and_unreadable_files_are_named_and_never_opened(planted: Path) -> None:
    os.mkfifo(planted / "pipe.txt")
    (planted / "locked.txt").write_text("x")
    (planted / "locked.txt").chmod(0)
    said = {one.name: one.reason for one in files_below(planted).withheld}
    assert said["pipe.txt"] == "no regular file"
    assert os.geteuid() == 0 or "cannot be read" in said["locked.txt"]


def test_names_that_a_terminal_would_obey_are_shown_as_text(cli: Cli, tmp_path: Path) -> None:
    plant(tmp_path / "code", {"a\x1b[2Jb.py": "x", "c\nd.py": "x", "e\u202ef.py": "x"})
    done = cli("submit", "--dry-run", "--working-dir", tmp_path / "code", "run", *OUT)
    assert done.code == 0
    assert all(letter == "\n" or letter.isprintable() for letter in done.out)
    assert "a\\x1b[2Jb.py" in done.out


def test_equal_folders_give_equal_packages(planted: Path, tmp_path: Path) -> None:
    packages = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        packages.append(packed(files_below(planted), tmp_path / name).read_bytes())
        os.utime(planted / "exp.toml", (1, 1))
    assert packages[0] == packages[1]


def test_a_file_that_changes_after_it_was_listed_stops_the_sending(planted: Path, tmp_path: Path) -> None:
    files = files_below(planted)
    (planted / "exp.toml").unlink()
    (planted / "exp.toml").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match=r"exp\.toml: cannot be read any more"):
        packed(files, tmp_path)
    (planted / "exp.toml").unlink()
    (planted / "exp.toml").write_text("longer than it was when it was listed")
    (tmp_path / "again").mkdir()
    with pytest.raises(UsageError, match=r"exp\.toml: changed"):
        packed(files, tmp_path / "again")


def test_no_file_of_raffed_itself_is_taken_for_a_secret() -> None:
    """A checkout is what --working-dir is given most often, and a module that stays here is a job that
    fails.
    """
    root = Path(__file__).parents[2]
    files = [
        path
        for name in ("raffed", "analysis", "tune_spaces", "cluster")
        for path in (root / name).rglob("*.*")
    ]
    texts = [path for path in files if path.suffix in (".py", ".yaml", ".toml", ".csv", ".md", ".sbatch")]
    assert len(texts) > 200
    assert [str(path) for path in texts if secret_contents(path.read_bytes(), path.name)] == []
