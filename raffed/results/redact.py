"""Messages without the secrets that an address in them may carry: what is printed or logged passes
through here.
"""

from __future__ import annotations

import re

_WORDS = "key|secret|token|passw|pwd|credential|signature|sig=|auth"
_USER = re.compile(
    r"://(?:[^\s/@:]*:\S*|[^\s/]*)@"
)  # //user:password@; a password may hold slashes and more @: rather too much
_FIELD = re.compile(rf"([?&;](?=[^=&\s]*(?:{_WORDS}))[^=&\s]+=)[^&\s'\")>]+", re.IGNORECASE)
_ENCODED = re.compile(
    r"%3A%2F%2F[^\s/&]*?%40", re.IGNORECASE
)  # an address with a user inside another's query


def without_secrets(text: str) -> str:
    """The text with … for the user and password of a URL, and for the values of query fields named like a
    secret.
    """
    return _FIELD.sub(r"\1…", _ENCODED.sub("%3A%2F%2F…%40", _USER.sub("://…@", text)))


def names_a_secret(field: str) -> bool:
    """Whether a query field of this name holds a secret."""
    return re.search(_WORDS, f"{field}=", re.IGNORECASE) is not None
