"""Open a URL for results through pyarrow's file systems."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from raffed.errors import UsageError
from raffed.results.text import names_a_secret, without_secrets

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# Abfs://container@account.dfs.core.windows.net/path: the text before the @ is not a secret
AZURE = (
    "abfs",
    "abfss",
)
NO_SECRETS = "credentials in a URL end up in logs; use the environment or a role"
# By default AWS's client puts a checksum behind every upload. Older stores, such as Ceph 16, refuse that with
# HTTP status 411. The files of a run have their own checksums.
NO_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}


def check_url(url: str) -> str:
    """Return the URL if it is possible and contains neither credentials nor an endpoint.

    Raises:
        UsageError: It does. The message does not repeat them.
    """
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
        named = parts.username is not None and scheme not in AZURE
        secret = named or parts.password is not None
    except ValueError as error:
        raise UsageError(f"{scheme}://…: not a URL ({without_secrets(str(error))})") from error
    if secret:
        raise UsageError(f"{scheme}://…@{parts.hostname}: {NO_SECRETS}")
    for field, value in parse_qsl(parts.query, keep_blank_values=True):
        if names_a_secret(field) or "@" in value:
            raise UsageError(f"{scheme}://{parts.netloc}{parts.path}?{field}=…: {NO_SECRETS}")
    return url


def opened(url: str) -> tuple[FileSystem, str]:
    """Return pyarrow's file system for a URL, and the path in it."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        with _without_checksums():
            found, root = fs.FileSystem.from_uri(url)
    except (OSError, ValueError, pa.ArrowException) as error:
        known = "s3://, gs://, abfs://, hdfs:// or file:///"
        raise UsageError(
            f"{url}: results cannot be stored there ({one_line(error)}); give {known}"
        ) from error
    return found, root.rstrip("/")


@contextlib.contextmanager
def _without_checksums() -> Iterator[None]:
    """Have AWS's client send no such checksums, unless a variable says otherwise.

    The client reads the environment when it is made.
    """
    added = {name: value for name, value in NO_CHECKSUMS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, without what looks like a secret."""
    return without_secrets(" ".join(str(error).split()))
