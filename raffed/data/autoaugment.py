"""AutoAugment's 25 pairs of changes for CIFAR-10 (Cubuk et al. 2019), on batches.

A pair is drawn for each image. Each of its two changes happens with the pair's probability, and how strong it
is, is drawn from a tenth of the change's range. Pixels are whole numbers of 0 to 255 meanwhile, as in PIL.

Source:
    The pairs are those of Cubuk et al.'s Table 7. Ranges and resampling are those of
    4uiiurz1/pytorch-auto-augment, which FedDecorr and FedVLS use: signed ranges for geometry, cubic splines,
    and black outside the image. A change of colour is PIL's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from raffed.data.spline_sampling import sampled

Change: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # pixels [g, C, H, W], amounts [g] -> pixels
DRAWS = 5  # random numbers for each image: the pair, and for each change whether and how strongly
STEPS = 10  # parts of a range
GREY = (19595, 38470, 7471)  # PIL's weights of red, green and blue, in 1/65536


class Half(NamedTuple):
    """One change of a pair: its name, its probability, and the part of its range."""

    change: str
    share: float
    part: int


PAIRS = (
    (Half("invert", 0.1, 7), Half("contrast", 0.2, 6)),
    (Half("rotate", 0.7, 2), Half("translate_x", 0.3, 9)),
    (Half("sharpness", 0.8, 1), Half("sharpness", 0.9, 3)),
    (Half("shear_y", 0.5, 8), Half("translate_y", 0.7, 9)),
    (Half("autocontrast", 0.5, 8), Half("equalize", 0.9, 2)),
    (Half("shear_y", 0.2, 7), Half("posterize", 0.3, 7)),
    (Half("color", 0.4, 3), Half("brightness", 0.6, 7)),
    (Half("sharpness", 0.3, 9), Half("brightness", 0.7, 9)),
    (Half("equalize", 0.6, 5), Half("equalize", 0.5, 1)),
    (Half("contrast", 0.6, 7), Half("sharpness", 0.6, 5)),
    (Half("color", 0.7, 7), Half("translate_x", 0.5, 8)),
    (Half("equalize", 0.3, 7), Half("autocontrast", 0.4, 8)),
    (Half("translate_y", 0.4, 3), Half("sharpness", 0.2, 6)),
    (Half("brightness", 0.9, 6), Half("color", 0.2, 8)),
    (Half("solarize", 0.5, 2), Half("invert", 0.0, 3)),
    (Half("equalize", 0.2, 0), Half("autocontrast", 0.6, 0)),
    (Half("equalize", 0.2, 8), Half("equalize", 0.6, 4)),
    (Half("color", 0.9, 9), Half("equalize", 0.6, 6)),
    (Half("autocontrast", 0.8, 4), Half("solarize", 0.2, 8)),
    (Half("brightness", 0.1, 3), Half("color", 0.7, 0)),
    (Half("solarize", 0.4, 5), Half("autocontrast", 0.9, 3)),
    (Half("translate_y", 0.9, 9), Half("translate_y", 0.7, 9)),
    (Half("autocontrast", 0.9, 2), Half("solarize", 0.8, 3)),
    (Half("equalize", 0.8, 8), Half("invert", 0.1, 3)),
    (Half("translate_y", 0.7, 9), Half("autocontrast", 0.9, 1)),
)
RANGES: Mapping[str, tuple[float, float]] = {  # change → its weakest and its strongest amount
    "shear_y": (-0.3, 0.3),
    "translate_x": (-150 / 331, 150 / 331),
    "translate_y": (-150 / 331, 150 / 331),
    "rotate": (-30.0, 30.0),
    "solarize": (0.0, 256.0),
    "posterize": (4.0, 8.0),
    "contrast": (0.1, 1.9),
    "color": (0.1, 1.9),
    "brightness": (0.1, 1.9),
    "sharpness": (0.1, 1.9),
    "autocontrast": (0.0, 0.0),
    "equalize": (0.0, 0.0),
    "invert": (0.0, 0.0),
}


def apply(x: Tensor, mean: Tensor, std: Tensor, draws: Tensor) -> Tensor:
    """Return an augmented copy of the prepared batch x [B, C, H, W] of grey or coloured images.

    Args:
        x: Normalised images.
        mean, std: The normalisation of x, each [C, 1, 1].
        draws: Uniform random numbers in [0, 1), float64 [B, DRAWS].
    """
    pair = (draws[:, 0] * len(PAIRS)).long()
    pixels = ((x * std + mean) * 255).round().clamp(0, 255)
    touched = torch.zeros(len(x), dtype=torch.bool)
    for place in (0, 1):
        strength = draws[:, 2 + 2 * place]
        for name, which, parts in _happening(pair, draws[:, 1 + 2 * place], place):
            amounts = amount(name, parts, strength[which]).to(x.device, x.dtype)
            chosen = which.to(x.device)
            pixels[chosen] = CHANGES[name](pixels[chosen], amounts)
            touched[which] = True
    prepared = (pixels / 255 - mean) / std
    return torch.where(touched.to(x.device).view(-1, 1, 1, 1), prepared, x)


def _happening(pair: Tensor, u: Tensor, place: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the changes that happen at a place of the pairs: name, numbers of the images, and their parts."""
    drawn = [PAIRS[i][place] for i in pair.tolist()]
    by_name: dict[str, list[int]] = {}
    for image, (half, value) in enumerate(zip(drawn, u.tolist(), strict=True)):
        if value < half.share:
            by_name.setdefault(half.change, []).append(image)
    for name, images in by_name.items():
        yield name, torch.tensor(images), torch.tensor([drawn[image].part for image in images])


def amount(change: str, part: Tensor, u: Tensor) -> Tensor:
    """Return how strong a change is: uniform in one of ten parts of its range.

    Args:
        change: A key of RANGES.
        part: Number of the part for each image, 0 to 9.
        u: Uniform random numbers in [0, 1), one for each image.
    """
    least, most = RANGES[change]
    return least + (most - least) / STEPS * (part + u)


def invert(pixels: Tensor, _: Tensor) -> Tensor:
    return 255 - pixels


def solarize(pixels: Tensor, threshold: Tensor) -> Tensor:
    """Invert the pixels from a threshold on."""
    return torch.where(pixels < threshold.view(-1, 1, 1, 1), pixels, 255 - pixels)


def posterize(pixels: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of every pixel, as many as `bits` says after rounding."""
    step = 2.0 ** (8 - bits.round()).view(-1, 1, 1, 1)
    return (pixels / step).floor() * step


def autocontrast(pixels: Tensor, _: Tensor) -> Tensor:
    """Stretch every channel so that its darkest pixel is 0 and its brightest 255."""
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    width = (high - low).clamp(min=1).double()
    scale = torch.full_like(width, 255) / width  # a number over a tensor would be rounded twice
    stretched = (pixels * scale - low * scale).floor().clamp(0, 255).to(pixels.dtype)
    return torch.where(high > low, stretched, pixels)


def equalize(pixels: Tensor, _: Tensor) -> Tensor:
    """Spread the pixels of every channel so that all values are about as frequent."""
    rows = pixels.flatten(2).flatten(0, 1).long()  # [g C, H W]
    counts = torch.bincount(
        (rows + 256 * torch.arange(len(rows), device=rows.device)[:, None]).flatten(),
        minlength=256 * len(rows),
    ).view(-1, 256)
    last = counts.gather(1, rows.amax(1, keepdim=True))
    step = (rows.shape[1] - last) // 255  # [g C, 1]
    before = counts.cumsum(1) - counts
    table = ((before + step // 2) // step.clamp(min=1)).clamp(0, 255)
    spread = table.gather(1, rows).view_as(pixels).to(pixels.dtype)
    return torch.where((step > 0).view(*pixels.shape[:2], 1, 1), spread, pixels)


def grey(pixels: Tensor) -> Tensor:
    """Return the brightness [g, 1, H, W] of images, which are grey already or red, green and blue."""
    if pixels.shape[1] == 1:
        return pixels
    weights = torch.tensor(GREY, dtype=torch.float64, device=pixels.device).view(-1, 1, 1)
    return ((pixels * weights).sum(1, keepdim=True) + 32768).div(65536).floor().to(pixels.dtype)


def blend(weak: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    """Return weak + factor · (pixels − weak), cut to 0 to 255 and rounded down."""
    return (weak + factor.view(-1, 1, 1, 1) * (pixels - weak)).clamp(0, 255).floor()


def color(pixels: Tensor, factor: Tensor) -> Tensor:
    return blend(grey(pixels), pixels, factor)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    mean = (grey(pixels).double().mean((1, 2, 3), keepdim=True) + 0.5).floor().to(pixels.dtype)
    return blend(mean, pixels, factor)


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    return blend(torch.zeros_like(pixels), pixels, factor)


def sharpness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image smoothed by 3x3 weights, of which the centre has 5/13. The border stays."""
    smooth = pixels.clone()
    if min(pixels.shape[2:]) > 2:
        total = 4 * pixels[..., 1:-1, 1:-1]
        for i in range(3):
            for j in range(3):
                total = total + pixels[..., i : pixels.shape[2] - 2 + i, j : pixels.shape[3] - 2 + j]
        smooth[..., 1:-1, 1:-1] = (total / 13 + 0.5).floor()
    return blend(smooth, pixels, factor)


def shear_y(pixels: Tensor, slope: Tensor) -> Tensor:
    one, zero = torch.ones_like(slope), torch.zeros_like(slope)
    return sampled(pixels, (one, zero, slope, one), (zero, zero))


def translate_x(pixels: Tensor, share: Tensor) -> Tensor:
    one, zero = torch.ones_like(share), torch.zeros_like(share)
    return sampled(pixels, (one, zero, zero, one), (zero, share * pixels.shape[3]))


def translate_y(pixels: Tensor, share: Tensor) -> Tensor:
    one, zero = torch.ones_like(share), torch.zeros_like(share)
    return sampled(pixels, (one, zero, zero, one), (share * pixels.shape[2], zero))


def rotate(pixels: Tensor, degrees: Tensor) -> Tensor:
    angle = torch.deg2rad(degrees)
    return sampled(
        pixels, (angle.cos(), -angle.sin(), angle.sin(), angle.cos()), (torch.zeros_like(angle),) * 2
    )


CHANGES: Mapping[str, Change] = {
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
    "solarize": solarize,
    "posterize": posterize,
    "contrast": contrast,
    "color": color,
    "brightness": brightness,
    "sharpness": sharpness,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "invert": invert,
}
