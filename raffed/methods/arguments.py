"""Arguments that several methods take with one meaning."""

from __future__ import annotations

from typing import Annotated, Literal

from raffed.config.validation import Doc

Preset = Literal["original", "authors"]
Variant = Annotated[
    Preset,
    Doc("Variant of the method: as published (original) or as in MAP's released code (authors)."),
]
