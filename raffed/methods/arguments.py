"""Arguments that several methods take with one meaning."""

from __future__ import annotations

from typing import Annotated

from raffed.config.validation import Doc
from raffed.errors import Preset

Variant = Annotated[
    Preset,
    Doc("Variant of the method: as published (original) or as in MAP's released code (authors)."),
]
