"""Recognise files that look like secrets, by their name and contents. Such files are not sent with a job.

Names are compared without regard to case, and without the endings of copies and backups. In case of doubt
every rule keeps a file here. A user who needs the file in the job can rename it, or put it on the shared
storage.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import pairwise

HIDDEN_THAT_TRAVEL = {".gitignore", ".rayignore", ".gitattributes", ".editorconfig", ".python-version"}
SNIFFED = 1 << 20  # bytes at the beginning of a file that are searched for secrets

_FOLDERS = {  # where programs keep logins; other hidden folders are not sent either, for another reason
    ".git",
    ".hg",
    ".svn",
    ".bzr",
    ".ssh",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".gnupg",
    ".config",
    ".terraform",
    ".terraform.d",
    ".ray",
    ".oci",
    ".kaggle",
    ".huggingface",
    ".password-store",
    ".secrets",
    "secrets",
    "credentials",
}
_FILES = (
    ".env*",
    "*.env",
    ".netrc*",
    "_netrc",
    "netrc",
    ".git",
    ".git-credentials*",
    ".gitconfig",
    ".pypirc",
    ".npmrc",
    ".yarnrc*",
    ".dockercfg",
    ".dockerconfigjson",
    "kubeconfig*",
    "*.kubeconfig",
    "*kubeconfig.y*ml",
    "*.pem",
    "*.key",
    "*.p8",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.jceks",
    "*.keystore",
    "*.keytab",
    "*.ppk",
    "*.kdbx",
    "*.gpg",
    "*.pgp",
    "*.ovpn",
    "*.der",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "id_xmss*",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "*.tfvars.json",
    ".terraformrc",
    "terraform.rc",
    ".vault-token",
    ".pgpass",
    "pgpass.conf",
    ".my.cnf",
    ".mylogin.cnf",
    ".boto",
    ".s3cfg",
    ".htpasswd",
    "htpasswd",
    ".renviron",
    ".*_history",
    ".*history",
    "*_history.txt",
    "shadow",
    "kaggle.json",
    "clearml.conf",
    "rclone.conf",
    "cookies.txt",
    "*.token",
    "token",
    "tokens",
    "token*.txt",
    "token.json",
    "tokens.json",
    "secrets.*",
    "service-account*",
    "service_account*",
    "serviceaccount*",
    "client_secret*",
    "application_default_credentials*",
)
# Words that mark a file of settings or text as secret, but not a program: credentials.json, not
# credentials.py.
_WORDS = {
    "secret",
    "secrets",
    "credential",
    "credentials",
    "password",
    "passwords",
    "passwd",
    "apikey",
    "apikeys",
    "authtoken",
    "accesskeys",
    "rootkey",
}
_PAIRS = {
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("auth", "token"),
    ("access", "token"),
    ("hf", "token"),
}
_SETTINGS = {
    "",
    "txt",
    "json",
    "yaml",
    "yml",
    "toml",
    "ini",
    "cfg",
    "conf",
    "xml",
    "properties",
    "csv",
    "env",
    "b64",
}
_COPY = re.compile(
    r"(~|\.(bak|old|orig|save|saved|backup|copy|swp|tmp|dist|\d+)|[ _-]*\(?copy( \d+)?\)?| ?\(\d+\)|[ .])$"
)

_CONTENTS = tuple(
    (what, re.compile(pattern))
    for what, pattern in {
        "a private key": rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|PuTTY-User-Key-File-\d:",
        "a key of AWS": rb"\b(AKIA|ASIA)[0-9A-Z]{16}\b"
        rb"|(?i:aws_secret_access_key|aws_session_token)[\"' ]*[=:][\"' ]*[A-Za-z0-9/+]{30}",
        "a token of GitHub": rb"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{50})",
        "a token of GitLab": rb"\bgl(pat|dt|rt|ptt|cbt)-[A-Za-z0-9_-]{20}",
        "a token of Hugging Face": rb"\b(hf|api_org)_[A-Za-z]{30}",
        "a token of PyPI or npm": rb"\bpypi-AgE[A-Za-z0-9_-]{20}|\bnpm_[A-Za-z0-9]{36}|:_authToken=[A-Za-z0-9_-]{12}",  # noqa: E501
        "an API key": rb"\bsk-[A-Za-z0-9_-]{32}|\bsk_live_[A-Za-z0-9]{16}|\bSG\.[\w-]{16,}\.[\w-]{16,}|\bdapi[0-9a-f]{32}\b"  # noqa: E501
        rb"|\bdop_v1_[0-9a-f]{32}|\bhvs\.[A-Za-z0-9_-]{24}",
        "a token of Google": rb"\bAIza[0-9A-Za-z_-]{35}|\bya29\.[0-9A-Za-z_-]{20}|\"private_key_id\"\s*:",
        "a token of Slack": rb"\bxox[abeoprs]-[0-9A-Za-z-]{10}|hooks\.slack\.com/services/T\w+/B\w+/\w{16}",
        "a signed web token": rb"\beyJ[A-Za-z0-9_-]{12,}\.eyJ[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{16,}",
        "a key of Azure": rb"AccountKey=[A-Za-z0-9+/]{40}|SharedAccessKey=[A-Za-z0-9+/]{30}",
        "a login of Docker": rb"\"auths\"\s*:[\s\S]{0,300}\"(auth|identitytoken)\"\s*:\s*\"[A-Za-z0-9+/=._-]{8}",  # noqa: E501
        "a login of Kubernetes": rb"\bclient-key-data\s*:|(?m:^\s*kind\s*:\s*[\"']?Secret\b)",
        "a login of .netrc": rb"(?m:^\s*(machine\s+\S+|default)\s+login\s+\S+\s+password\s+\S)",
    }.items()
)
_SET = re.compile(
    rb"(?mi)^\s*(?:export\s+|set\s+)?[\"']?[A-Z0-9_.-]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)[\"']?"
    rb"\s*[=:]\s*[\"']?(?![\"'$<%{*~/.])[^\s\"'#,]{8}"
)
_IN_ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]*://[^\s/:@\"']*:[^\s/@\"'${}<>]{3,}@", re.IGNORECASE)
_SETTING_FILES = {
    "env",
    "ini",
    "cfg",
    "conf",
    "toml",
    "yaml",
    "yml",
    "json",
    "txt",
    "sh",
    "bash",
    "properties",
    "xml",
    "",
}


def hidden_or_secret_name(name: str, folder: bool = False) -> str:
    """Return why a file or folder with this name is not sent, or an empty text if the name is harmless."""
    plain = _without_copy(name.casefold())
    if is_login_folder(name) if folder else _names_secret(plain):
        return "looks like a secret by its name"
    if plain.startswith(".") and name not in HIDDEN_THAT_TRAVEL:
        return "hidden: settings of this machine, which may hold logins"
    return ""


def is_login_folder(name: str) -> bool:
    """Return whether programs keep logins or histories in a folder of this name."""
    return _without_copy(name.casefold()) in _FOLDERS


def secret_contents(data: bytes, name: str = "") -> str:
    """Return which kind of secret the beginning of a file holds, or an empty text if none is found.

    The secret itself is never returned.
    """
    text = data[:SNIFFED].replace(b"\0", b"")  # UTF-16 is then read as ASCII
    for what, pattern in _CONTENTS:
        if pattern.search(text):
            return f"holds what looks like {what}"
    if _ending(_without_copy(name.casefold())) in _SETTING_FILES and (
        _SET.search(text) or _IN_ADDRESS.search(text)
    ):
        return "holds what looks like a password or a token"
    return ""


def _names_secret(plain: str) -> bool:
    if any(fnmatchcase(plain, pattern) for pattern in _FILES):
        return True
    ending = _ending(plain)
    if ending not in _SETTINGS:
        return False
    words = re.findall(r"[a-z0-9]+", plain.removesuffix(f".{ending}"))
    if plain.startswith("id_") and ending == "":  # ssh's names for keys; id_map.py is not one
        return True
    return words[-1:] == ["token"] or not _WORDS.isdisjoint(words) or not _PAIRS.isdisjoint(pairwise(words))


def _ending(plain: str) -> str:
    return plain.rpartition(".")[2] if "." in plain.strip(".") else ""


def _without_copy(plain: str) -> str:
    """Return the name of the original of a copy or backup: `.env` for `.env.bak`."""
    while (shorter := _COPY.sub("", plain)) != plain and shorter:
        plain = shorter
    return plain
