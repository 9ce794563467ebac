"""What `raffed submit --working-dir` sends: a folder with everything planted in it that should stay here,
and the exact list.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raffed.errors import UsageError
from raffed.runtime.job_file_rules import DATA
from raffed.runtime.job_files import files_below, packed
from raffed.runtime.ray_backend import jobs
from raffed.runtime.ray_backend.jobs import JobOrder
from raffed.runtime.secret_files import secret_contents
from tests.cli.conftest import Cli

OUT = ["--out", "s3://bucket/runs/a"]
# Put together here, so that no reader of the repository takes a test for a leak.
KEY = "-----BEGIN OPENSSH PRIVATE" + " KEY-----\nAAAA\n"
GITHUB, AWS = "gh" + "p_" + "a1B2" * 9, "AKIA" + "ABCDEFGH23456789"

TRAVELS = {
    "exp.toml": 'method = "map"\n',
    "pkg/__init__.py": "",
    "pkg/tokenizer.json": "{}",
    "pkg/id_map.py": "x = 1\n",
    "pkg/data/files.py": "x = 1\n",
    "pkg/password_strength.py": "x = 1\n",
    "deep/er/notes.md": "password: see the vault\n",
    ".gitignore": "/ignored/\n*.log\n",
    "pkg/.gitignore": "local.py\n",
    "README.md": "postgres://user:password@host/db\n",
    "keyboard.txt": "qwerty",
    "monkey.csv": "1,2\n",
    "config.yaml": "ssh_private_key: ~/.ssh/work\ntoken: ${TOKEN}\n",
    "ä ö.txt": "ü",
}
SECRETS = [
    ".env",
    ".env.local",
    ".ENV.Production",
    "prod.env",
    ".envrc",
    ".netrc",
    "_netrc",
    "wandb/netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".docker/config.json",
    ".aws/credentials",
    ".aws/config",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".config/gh/hosts.yml",
    ".kube/config",
    "kubeconfig",
    "kubeconfig-prod.yaml",
    "prod.kubeconfig",
    ".ssh/known_hosts",
    "id_rsa",
    "ID_RSA",
    "id_ed25519",
    "id_ed25519.pub",
    "id_work",
    "keys/server.pem",
    "keys/server.key",
    "keys/Server.KEY.bak",
    "a.p12",
    "a.pfx",
    "a.jks",
    "a.ppk",
    "credentials.json",
    "Credentials-2.JSON",
    "my credentials (copy).json",
    "service-account-x.json",
    "service_account.json",
    "client_secret_123.json",
    "token.txt",
    "token_old.txt",
    "hf_token",
    "github.token",
    "secrets.toml",
    "secrets.yaml",
    "db-password.txt",
    "api_key.txt",
    ".git/config",
    "sub/.git/config",
    "sub/module/.git",
    ".hg/hgrc",
    ".svn/wc.db",
    ".Renviron",
    ".pgpass",
    ".boto",
    ".s3cfg",
    ".terraform/x.tf",
    "main.tfstate",
    "main.tfstate.backup",
    "x.tfvars",
    ".vault-token",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".Rhistory",
    ".ray/auth_token",
    "sub/.ray/auth_token",
    "kaggle.json",
    ".kaggle/kaggle.json",
    ".huggingface/token",
    ".htpasswd",
    ".mylogin.cnf",
    ".env~",
    "id_rsa.bak",
    "id_rsa (1)",
    "sub/.env/x",
    ".unheard-of-program/login",
    ".jupyter/jupyter_server_config.json",
    "accessKeys.csv",
    "x.keytab",
]
CONTENTS = {
    "notes1.txt": KEY,
    "pkg/work": KEY.replace("OPENSSH ", ""),
    "pkg/deploy.py": f'token = "{GITHUB}"\n',
    "setup.cfg": f"x = {AWS}\n",
    "run.sh": "export WANDB_API_KEY=" + "0a" * 20 + "\n",
    "db.ini": "url = mysql://me:hunter22@host/db\n",
    "docker.json": '{"auths": {"r": {"auth": "' + "dXNlcjpwYXNz" + '"}}}',
    "k8s.yaml": "apiVersion: v1\nkind: Secret\n",
    "hosts": "machine api.host login me password verysecret\n",
    "sa.json": '{"private_key' + '_id": "1"}',
    "nb.ipynb": '{"text": "hf' + "_" + "abcdefghij" * 3 + '"}',
    "cert.txt": KEY.replace("OPENSSH", "RSA"),
}
MACHINE = [
    ".venv/bin/python",
    "env2/pyvenv.cfg",
    "env2/lib/x.py",
    "pkg/__pycache__/a.pyc",
    ".mypy_cache/x",
    "data/mnist/x.txt",
    "shared/x",
    "runs/a/x.txt",
    "elsewhere/run.json",
    "elsewhere/notes.txt",
    "x.parquet",
    "pkg/deep/x.npz",
    "pkg/w.safetensors",
    "pkg/x.PT",
    "node_modules/x/i.js",
    "a.egg-info/PKG-INFO",
    "sweeps/b/x",
    "x.tar.gz",
    "mlruns/0/meta.yaml",
    "wandb/run/x.txt",
    "x.sqlite",
    "pkg/checkpoints/x",
    "ignored/x.txt",
    "deep/x.log",
    "pkg/local.py",
]


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    plant(root, {**dict.fromkeys(MACHINE, "x"), **dict.fromkeys(SECRETS, "x"), **CONTENTS, **TRAVELS})
    (root / "utf16.txt").write_bytes(KEY.encode("utf-16"))
    return root


def names(package: Path) -> list[str]:
    with zipfile.ZipFile(package) as archive:
        return sorted(archive.namelist())


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


class NoServer:
    """A job client that must not be made."""

    def __init__(self, address: str | None) -> None:
        raise AssertionError("a job server was called")


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


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JobSubmissionClient", NoServer)


def large(root: Path) -> Path:
    (root / "code").mkdir()
    for name in ("a.txt", "b.txt"):
        with open(root / "code" / name, "wb") as file:
            file.truncate(30_000_000)
    return root / "code"


@pytest.mark.usefixtures("refusing")
def test_more_than_50_mb_are_listed_and_not_sent_without_yes(cli: Cli, tmp_path: Path) -> None:
    done = cli("submit", "--working-dir", large(tmp_path), "run", *OUT)
    assert done.code == 2
    assert "60.0 MB would be sent, more than 50 MB" in done.err
    assert "--yes" in done.err
    assert "30,000,000 bytes  a.txt" in done.err


def test_more_than_50_mb_are_sent_with_yes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    class Server:
        def __init__(self, address: str | None) -> None: ...

        def get_address(self) -> str:
            return "http://x"

        def submit_job(self, **given: Any) -> str:
            sent.append({"names": names(Path(given["runtime_env"]["working_dir"]))})
            return "job"

    monkeypatch.setattr(jobs, "JobSubmissionClient", Server)
    done = cli("submit", "--yes", "--no-wait", "--working-dir", large(tmp_path), "run", *OUT)
    assert done.code == 0, done.err
    assert sent == [{"names": ["a.txt", "b.txt"]}]


Refused = Callable[[Path], list[object]]
REFUSALS: dict[str, tuple[Refused, str]] = {
    "an experiment that is ignored": (
        lambda root: ["--working-dir", root, "run", root / "ignored" / "exp.toml"],
        r"named in .gitignore",
    ),
    "an experiment with a secret": (
        lambda root: ["--working-dir", root, "run", root / "leak.toml"],
        "token of GitHub",
    ),
    "a secret experiment alone": (lambda root: ["run", root / "leak.toml"], "token of GitHub"),
    "a secret variable": (lambda root: ["--env", f"X={GITHUB}", "run"], "--env X"),
    "a variable with a secret's name": (
        lambda root: ["--env", "HF_TOKEN=0123456789ab", "run"],
        "--env HF_TOKEN",
    ),
    "a secret word": (lambda root: ["run", "--data-root", GITHUB], "a word of the command"),
    "a folder of logins": (lambda root: ["--working-dir", root / ".aws", "run"], "logins"),
}


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("case", REFUSALS)
def test_what_would_give_a_secret_away_is_refused_without_repeating_it(
    cli: Cli, planted: Path, case: str
) -> None:
    plant(planted, {"ignored/exp.toml": 'method = "map"\n', "leak.toml": f'method = "map"  # {GITHUB}\n'})
    typed, said = REFUSALS[case]
    done = cli("submit", *typed(planted), *OUT)
    assert done.code == 2
    assert said in done.err
    assert GITHUB not in done.out + done.err
    assert "0123456789ab" not in done.out + done.err


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
