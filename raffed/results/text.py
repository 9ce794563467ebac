"""How text of strangers is shown: unusual characters are escaped, secrets are left out."""

from __future__ import annotations

import re
import sys

# Make text from others safe to print. The name of a folder or a file may contain commands for a terminal.


def visible(text: str) -> str:
    r"""Return the text with every character that a terminal would obey, hide or reorder written as its code.

    Such codes are `\x1b` or `\u202e`. Letters of all scripts, digits, signs and the plain space stay.
    Escapes, tabs, line breaks, invisible and direction-changing characters, and bytes of a file name that are
    not UTF-8 become visible.
    """
    return "".join(letter if letter.isprintable() else _code(letter) for letter in text)


def visible_lines(text: str) -> str:
    """Apply `visible` to a text of several lines. Line breaks and tabs stay."""
    return "".join(letter if letter in "\n\t" or letter.isprintable() else _code(letter) for letter in text)


def tell(*lines: str, error: bool = False) -> None:
    """Print lines. Commands print by this function alone, so that no name from a file reaches the terminal.

    Args:
        *lines: Lines, of which each is made `visible`. Without any it is an empty one.
        error: Whether they go to the standard error.
    """
    text = "\n".join(map(visible, lines))
    print(text, file=sys.stderr if error else sys.stdout, flush=True)


def _code(letter: str) -> str:
    number = ord(letter)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


# Remove secrets that an address may contain from messages. Everything printed or logged passes through
# here.


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
