"""Characters that LaTeX does not print as they are, and what prints them without a package."""

from __future__ import annotations

from typing import Final

_LETTERS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_NAMES = (
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_MATHS = {
    **{letter: f"\\{name}" for letter, name in zip(_LETTERS, _NAMES.split(), strict=True)},
    "µ": r"\mu",  # the sign of a millionth, which looks the same
    "±": r"\pm",
    "−": "-",
    "✓": r"\surd",
    "✗": r"\times",
    "×": r"\times",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "→": r"\rightarrow",
    "←": r"\leftarrow",
    "○": r"\circ",
    "●": r"\bullet",
    "·": r"\cdot",
    "⊙": r"\odot",
    "≈": r"\approx",
    "≥": r"\geq",
    "≤": r"\leq",
    "≠": r"\neq",
    "∞": r"\infty",
    "∇": r"\nabla",
    "√": r"\surd",
    "‖": r"\Vert",
    "½": r"\frac{1}{2}",
    "°": r"^{\circ}",
    "⁺": "^{+}",
    "⁻": "^{-}",
    "ᵀ": r"^{\top}",
    **{raised: f"^{{{digit}}}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{lowered: f"_{{{digit}}}" for digit, lowered in enumerate("₀₁₂₃₄₅₆₇₈₉")},
}
LATEX: Final = {
    **{letter: f"\\{letter}" for letter in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",  # the usual font has other characters in the places of these three
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "…": r"\ldots{}",
    "ḡ": r"\={g}",
    "\u0304": "",  # a bar over the letter before it, which has no command that follows the letter
    "\u0303": "",  # a tilde over it
    **{character: f"${command}$" for character, command in _MATHS.items()},
}
