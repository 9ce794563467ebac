"""A folder with everything planted in it that `raffed submit` should leave where it is."""

from __future__ import annotations

import zipfile
from pathlib import Path

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


def names(package: Path) -> list[str]:
    with zipfile.ZipFile(package) as archive:
        return sorted(archive.namelist())


class NoServer:
    """A job client that must not be made."""

    def __init__(self, address: str | None) -> None:
        raise AssertionError("a job server was called")
