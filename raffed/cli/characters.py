r"""What is printed if a stream's encoding lacks a character, such as in a log file on Windows or on a Linux
without UTF-8.

raffed's own symbols become similar ASCII words, so that tables and messages stay readable. Every other
character becomes its escape, such as \u4e2d.
"""

from __future__ import annotations

import codecs
import io
import sys

NAME = "raffed-ascii"  # name of the error handler for characters that cannot be encoded
WORDS = {
    "→": "->",
    "←": "<-",
    "—": "-",
    "–": "-",
    "−": "-",
    "‖": "|",
    "·": "*",
    "×": "x",
    "±": "+/-",
    "…": "...",
    "§": "section ",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~",
    "∞": "inf",
    "½": "1/2",
    "°": " degrees",
    "√": "sqrt",
    "Σ": "sum",
    "∂": "d",
    "∇": "grad",
    "∫": "integral",
    "⊙": "*",
    "∘": "o",
    "✓": "yes",
    "✗": "no",
    "●": "*",
    "ᵀ": "^T",
    "⁺": "^+",
    "²": "^2",
    "³": "^3",
    "⁷": "^7",
    "₀": "0",
    "₁": "1",
    "₂": "2",
    "⟨": "<",
    "⟩": ">",
    "⌊": "floor(",
    "⌋": ")",
    "⌈": "ceil(",
    "⌉": ")",
    "ℓ": "l",
    "─": "-",
    "│": "|",
    "├": "|",
    "└": "`",
    "•": "*",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "\N{NO-BREAK SPACE}": " ",
    "\N{NARROW NO-BREAK SPACE}": " ",
    "\N{MICRO SIGN}": "u",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "Δ": "Delta",
    "ε": "epsilon",
    "η": "eta",
    "θ": "theta",
    "λ": "lambda",
    "μ": "mu",
    "ν": "nu",
    "π": "pi",
    "ρ": "rho",
    "σ": "sigma",
    "ς": "sigma",
    "τ": "tau",
    "φ": "phi",
    "Φ": "Phi",
    "ψ": "psi",
    "ω": "omega",
}


def print_everywhere() -> None:
    """Make sure that no print to stdout or stderr fails because the encoding lacks a character."""
    codecs.register_error(NAME, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=NAME)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the replacement for the first character that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    # A byte of a file's name that is not text; printed as it is, as Python does
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), error.start + 1
    one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return WORDS.get(character) or codecs.backslashreplace_errors(one)[0], error.start + 1
