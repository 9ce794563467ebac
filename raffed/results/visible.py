"""Make text from others safe to print. The name of a folder or a file may contain commands for a terminal."""

from __future__ import annotations


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


def _code(letter: str) -> str:
    number = ord(letter)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )
