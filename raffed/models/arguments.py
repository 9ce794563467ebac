"""Arguments that several networks take with one meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from raffed.config.validation import Doc, Length, Range

ImageShape = Annotated[
    tuple[int, int, int], Length(3, 3), Range(1), Doc("Channels, height and width of an image.")
]
AnyShape = Annotated[
    tuple[int, ...], Length(1), Range(1), Doc("Shape of one sample: (channels, height, width), or any other.")
]
Classes = Annotated[int, Range(1), Doc("Number of classes C.")]
HeadBias = Annotated[bool, Doc("Whether the head has a bias.")]
HiddenWidths = Annotated[Sequence[int], Length(1), Range(1), Doc("Widths of the hidden layers.")]
MoonProjection = Annotated[
    int, Range(0, 65536), Doc("Width of MOON's projection between body and head; 0 for none.")
]
ProjectionHidden = Annotated[
    int, Range(0, 65536), Doc("Width of the projection's hidden layer; 0: that of the last layer before it.")
]
DropoutRate = Annotated[float, Range(0.0, 0.99), Doc("Probability of dropout.")]
