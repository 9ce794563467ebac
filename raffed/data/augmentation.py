"""Random augmentations of images: AutoAugment, and those of FLamby's Fed-ISIC2019."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from raffed.data.preparation import FlambyAugment

# Resample images by cubic splines, as scipy.ndimage.affine_transform does with its defaults.


Four = tuple[Tensor, Tensor, Tensor, Tensor]


def sampled(pixels: Tensor, matrix: Four, shift: tuple[Tensor, Tensor]) -> Tensor:
    """Return images whose pixel at (r, c) is that of the old image at A·((r, c) − o) + o + shift.

    o is half a pixel beyond the middle of the image, (H/2 + 1/2, W/2 + 1/2). Outside the image is black.
    Between pixels there is a cubic spline, which continues by reflection at the borders.

    Args:
        pixels: [g, C, H, W], whole numbers of 0 to 255.
        matrix: A by rows, each element [g].
        shift: In rows and in columns, each [g].

    Returns:
        Whole numbers of 0 to 255, [g, C, H, W].
    """
    height, width = pixels.shape[2:]
    r = torch.arange(height, dtype=torch.float64, device=pixels.device)[:, None] - (height / 2 + 0.5)
    c = torch.arange(width, dtype=torch.float64, device=pixels.device)[None, :] - (width / 2 + 0.5)
    a, b, d, e = (entry.double().view(-1, 1, 1) for entry in matrix)
    down, across = (offset.double().view(-1, 1, 1) for offset in shift)
    rows = a * r + b * c + height / 2 + 0.5 + down  # [g, H, W]
    columns = d * r + e * c + width / 2 + 0.5 + across
    inside = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    values = _spline(_coefficients(pixels.double()), rows, columns)
    return torch.where(inside[:, None], (values + 0.5).floor().clamp(0, 255), 0.0).to(pixels.dtype)


def _coefficients(pixels: Tensor) -> Tensor:
    """Return the coefficients of the splines that pass through the pixels."""
    left, right = (_inverse(side).to(pixels.device) for side in pixels.shape[2:])
    return left @ pixels @ right.T


@functools.lru_cache(maxsize=16)
def _inverse(side: int) -> Tensor:
    """Return the inverse of the matrix that makes values of coefficients: 1/6, 4/6, 1/6 around each pixel."""
    if side == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    values = torch.zeros(side, side, dtype=torch.float64)
    for i in range(side):
        values[i, i] += 4 / 6
        for beside in (i - 1, i + 1):
            values[i, side - 1 - abs(side - 1 - abs(beside))] += 1 / 6
    inverse: Tensor = torch.linalg.inv(values)
    return inverse


def _spline(coefficients: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the splines' values [g, C, H, W] at places [g, H, W]."""
    g, channels, height, width = coefficients.shape
    flat, total = coefficients.flatten(2), coefficients.new_zeros(g, channels, height * width)
    across = _taps(columns, width)
    for i, down in _taps(rows, height):
        for j, weight in across:
            place = (i * width + j).flatten(1)[:, None].expand(-1, channels, -1)
            total += flat.gather(2, place) * (down * weight).flatten(1)[:, None]
    return total.view_as(coefficients)


def _taps(at: Tensor, side: int) -> list[tuple[Tensor, Tensor]]:
    """Return the four pixels around each place of a line, and their weights."""
    first = at.floor()
    t = at - first
    weights = (
        (1 - t) ** 3 / 6,
        (4 - 6 * t**2 + 3 * t**3) / 6,
        (1 + 3 * t + 3 * t**2 - 3 * t**3) / 6,
        t**3 / 6,
    )
    last = max(side - 1, 1)
    places = ((first.long() - 1 + k) % (2 * last) for k in range(4))
    return [
        ((last - (last - place).abs()).clamp(max=side - 1), weight)
        for place, weight in zip(places, weights, strict=True)
    ]


# AutoAugment's 25 pairs of changes for CIFAR-10 (Cubuk et al. 2019), on batches.
#
# A pair is drawn for each image. Each of its two changes happens with the pair's probability, and how
# strong it is, is drawn from a tenth of the change's range. Pixels are whole numbers of 0 to 255 meanwhile,
# as in PIL.
#
# Source:
#     The pairs are those of Cubuk et al.'s Table 7. Ranges and resampling are those of
#     4uiiurz1/pytorch-auto-augment, which FedDecorr and FedVLS use: signed ranges for geometry, cubic
#     splines, and black outside the image. A change of colour is PIL's.


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
            pixels[chosen] = CHANGES[name][0](pixels[chosen], amounts)
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
        change: A key of CHANGES.
        part: Number of the part for each image, 0 to 9.
        u: Uniform random numbers in [0, 1), one for each image.
    """
    _, least, most = CHANGES[change]
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


CHANGES: Mapping[str, tuple[Change, float, float]] = {  # with the weakest and the strongest amount
    "shear_y": (shear_y, -0.3, 0.3),
    "translate_x": (translate_x, -150 / 331, 150 / 331),
    "translate_y": (translate_y, -150 / 331, 150 / 331),
    "rotate": (rotate, -30.0, 30.0),
    "solarize": (solarize, 0.0, 256.0),
    "posterize": (posterize, 4.0, 8.0),
    "contrast": (contrast, 0.1, 1.9),
    "color": (color, 0.1, 1.9),
    "brightness": (brightness, 0.1, 1.9),
    "sharpness": (sharpness, 0.1, 1.9),
    "autocontrast": (autocontrast, 0.0, 0.0),
    "equalize": (equalize, 0.0, 0.0),
    "invert": (invert, 0.0, 0.0),
}


# FLamby's augmentation of skin lesions (docs/papers/fedmr.md §E1): geometry, light and holes.
#
# Each change happens with probability 1/2. Scale, rotation, shear and shift are one bilinear resampling
# with mirrored borders. FLamby resamples three times and crops 200 of 224 pixels at random; here this is a
# shift of the central crop by up to 12 pixels. The number of holes is drawn for each image, while FLamby
# draws it once when the process starts.


def apply_flamby(x: Tensor, t: FlambyAugment, mean: Tensor, std: Tensor, draws: Tensor) -> Tensor:
    """Return an augmented copy of the prepared batch x [B, C, S, S] of square images.

    Args:
        x: Normalised images.
        t: Ranges of the changes.
        mean, std: The normalisation of x, each [C, 1, 1].
        draws: Uniform random numbers in [0, 1), float64 [B, t.draws].

    A hole is black in the raw image, which is (0 - mean) / std here.
    """
    x = _moved(x, t, draws)
    light, amount = draws[:, 6] < 0.5, (2 * draws[:, 7:9] - 1).to(x.dtype).to(x.device)
    raw = x * std + mean
    lit = raw * (1 + t.contrast * amount[:, 0]).view(-1, 1, 1, 1) + (t.brightness * amount[:, 1]).view(
        -1, 1, 1, 1
    )
    raw = torch.where(light.to(x.device).view(-1, 1, 1, 1), lit.clamp(0, 1), raw)
    black = _holes(t, draws[:, 9:], x.shape[-1]).to(x.device)
    return (torch.where(black[:, None], 0.0, raw) - mean) / std


def _moved(x: Tensor, t: FlambyAugment, draws: Tensor) -> Tensor:
    """Apply scale, rotation, shear, flips and shift. `theta` maps an output position to its source
    position.
    """
    on = draws[:, :4] < 0.5
    spread = 2 * torch.where(on, draws[:, :4] * 2, 0.5) - 1  # uniform in ±1 where it happens, else 0
    size = 1 + t.scale * spread[:, 0]
    angle = spread[:, 1] * math.radians(t.rotation_degrees)
    slant = on[:, 2] * math.tan(math.radians(t.shear_degrees))
    cos, sin = angle.cos() / size, angle.sin() / size
    which = torch.where(on[:, 3], (draws[:, 3] * 6).long(), 3)  # 0 left-right, 1 up-down, 2 both, 3 neither
    across = torch.where((which == 0) | (which == 2), -1.0, 1.0)
    down = torch.where((which == 1) | (which == 2), -1.0, 1.0)
    shift = (2 * draws[:, 4:6] - 1) * t.shift * 2 / x.shape[-1]
    rows = [
        across * cos,
        across * (cos * slant - sin),
        shift[:, 0],
        down * sin,
        down * (sin * slant + cos),
        shift[:, 1],
    ]
    theta = torch.stack(rows, dim=1).view(-1, 2, 3).to(x.device, x.dtype)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _holes(t: FlambyAugment, draws: Tensor, side: int) -> Tensor:
    """Return bool [B, S, S]: whether a pixel is inside one of 1 to `holes` squares.

    Squares lie anywhere inside the image. Half of the images have none.
    """
    count = torch.where(draws[:, 0] < 0.5, (draws[:, 0] * 2 * t.holes).long() + 1, 0)
    # [B, holes, 2]
    corners = (draws[:, 1:].view(len(draws), -1, 2)[:, : t.holes] * (side - t.hole_side + 1)).long()
    place = torch.arange(side)
    inside = (place >= corners[..., None]) & (place < corners[..., None] + t.hole_side)  # [B, holes, 2, S]
    squares = inside[:, :, 0, :, None] & inside[:, :, 1, None, :]
    wanted = torch.arange(squares.shape[1]) < count[:, None]
    return (squares & wanted[:, :, None, None]).any(dim=1)
