"""Remove secrets that an address may contain from messages. Everything printed or logged passes
through here.
"""

from __future__ import annotations

import re

_WORDS = "key|secret|token|passw|pwd|credential|signature|sig=|auth"
# //user:password@; a password may contain slashes and @, so this removes rather too much
_USER = re.compile(r"://(?:[^\s/@:]*:\S*|[^\s/]*)@")
_FIELD = re.compile(rf"([?&;](?=[^=&\s]*(?:{_WORDS}))[^=&\s]+=)[^&\s'\")>]+", re.IGNORECASE)
# An encoded address with a user, inside the query of another address
_ENCODED = re.compile(r"%3A%2F%2F[^\s/&]*?%40", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return the text with … for the user and password of a URL, and for the values of secret query fields.

    A field is secret if its name says so.
    """
    return _FIELD.sub(r"\1…", _ENCODED.sub("%3A%2F%2F…%40", _USER.sub("://…@", text)))


def names_a_secret(field: str) -> bool:
    """Return whether a query field of this name holds a secret."""
    return re.search(_WORDS, f"{field}=", re.IGNORECASE) is not None
