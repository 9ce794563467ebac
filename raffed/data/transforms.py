"""Preparation of images (scaling, resizing, normalising) and augmentation of batches (crop, flip, rotation).

Augmentation works on prepared images. The authors' pipelines augment raw images and normalise afterwards. So
pixels that come from outside the image are raw black here: (0 - mean) / std of their channel. The constants
are those of the experiments of FedMR (TMLR 2023) and MAP, as in their authors' code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from raffed.data.catalogue import DATASETS, dataset_name
from raffed.data.files import ByteArray
from raffed.data.flamby_augment import FlambyAugment, apply
from raffed.errors import UnknownNameError, UsageError, check_choice, check_range

STYLES = ("fedmr", "map", "map-authors", "plain")


@dataclass(frozen=True)
class Transform:
    """How the images of a data set are prepared and augmented.

    Attributes:
        size: Side in pixels after resizing; None keeps the stored size.
        centre: Side of the central square that is kept after resizing; None keeps all.
        mean, std: One number for each channel, in units of pixels in [0, 1].
        crop_padding: Pixels of padding before a random crop back to the same size; 0 for no crop.
        padding_mode: How the padding is filled.
        flip: Whether images are mirrored left to right with probability 1/2.
        rotation_degrees: The angle is uniform in ± that; nearest pixel.
        flamby: FLamby's augmentation, if any.
    """

    size: int | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop_padding: int = 0
    padding_mode: str = "zeros"
    flip: bool = False
    rotation_degrees: float = 0.0
    centre: int | None = None
    flamby: FlambyAugment | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_range("size", self.size, 1, 4096)
        if self.centre is not None:
            check_range("centre", self.centre, 1, 4096)
        check_range("crop_padding", self.crop_padding, 0, 256)
        check_choice("padding_mode", self.padding_mode, ("zeros", "reflect"))
        check_range("rotation_degrees", self.rotation_degrees, 0, 180)
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise UsageError(f"mean {self.mean} and std {self.std}: wanted one of each per channel, std > 0")

    @property
    def augments(self) -> bool:
        """Whether `augment` changes anything."""
        return self.crop_padding > 0 or self.flip or self.rotation_degrees > 0 or self.flamby is not None

    def prepared_shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return (channels, H, W) of prepared images whose stored shape is `shape`."""
        height, width = shape[1:] if self.size is None else (self.size, self.size)
        side = self.centre or max(height, width)
        return shape[0], min(side, height), min(side, width)


def prepare_images(images: ByteArray, t: Transform, max_value: int = 255) -> Tensor:
    """Prepare images: divide by `max_value`, resize (bilinear, align_corners=False), cut, and normalise.

    Args:
        images: uint8 [n, C, H, W]; n may be 0. The array is not changed.
        t: The transform.
        max_value: The pixel value that means 1.0.

    Returns:
        float32 [n, C, H', W'].

    Raises:
        UsageError: The images have another type or shape.
    """
    if images.ndim != 4 or images.shape[1] != len(t.mean) or images.dtype != np.uint8:
        raise UsageError(f"images are {images.dtype} {images.shape}, wanted uint8 (n, {len(t.mean)}, H, W)")
    x = torch.from_numpy(images.astype(np.float32)).div_(max_value)
    if t.size is not None and x.shape[-2:] != (t.size, t.size):
        if len(x) == 0:
            return x.new_zeros((0, x.shape[1], t.size, t.size))
        x = functional.interpolate(x, size=(t.size, t.size), mode="bilinear", align_corners=False)
    if t.centre is not None:
        top, left = (max(side - t.centre, 0) // 2 for side in x.shape[-2:])
        x = x[..., top : top + t.centre, left : left + t.centre].contiguous()
    return x.sub_(_per_channel(t.mean, x)).div_(_per_channel(t.std, x))


def augment(x: Tensor, t: Transform, generator: torch.Generator) -> Tensor:
    """Return a randomly cropped, flipped and rotated copy of the prepared batch x [B, C, H, W], on x's
    device.

    One draw from `generator`, on the CPU, serves the whole batch. If the transform does not augment, x itself
    is returned and the generator is not used.
    """
    if not t.augments or len(x) == 0:
        return x
    return augment_by(x, t, augment_draws(len(x), t, generator))


def augment_draws(batch: int, t: Transform, generator: torch.Generator) -> Tensor:
    """Draw the random numbers of a batch: uniform float64 [B, 4] for row, column, flip and angle.

    Those of `flamby` follow in further columns.
    """
    return torch.rand(
        (batch, 4 + (t.flamby.draws if t.flamby else 0)), generator=generator, dtype=torch.float64
    )


def augment_by(x: Tensor, t: Transform, draws: Tensor) -> Tensor:
    """Augment the batch x [B, C, H, W] by the numbers `draws` [B, ...], image by image."""
    if t.flamby is not None:
        x = apply(x, t.flamby, _per_channel(t.mean, x), _per_channel(t.std, x), draws[:, 4:])
    if t.crop_padding or t.flip:
        x = _crop_and_flip(x, t, draws)
    if t.rotation_degrees:
        x = _rotate(x, t, (2 * draws[:, 3] - 1) * t.rotation_degrees)
    return x


def _per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)


def _black(x: Tensor, t: Transform) -> Tensor:
    """Return the value of a raw black pixel after normalising, [C, 1, 1]."""
    return (0 - _per_channel(t.mean, x)) / _per_channel(t.std, x)


def _crop_and_flip(x: Tensor, t: Transform, draws: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    pad = t.crop_padding
    padded = _padded(x, t) if pad else x
    offsets = (draws[:, :2] * (2 * pad + 1)).long().clamp_(max=2 * pad)
    rows = offsets[:, :1] + torch.arange(height)
    across = torch.arange(width).expand(batch, width)
    if t.flip:
        across = torch.where(draws[:, 2:3] < 0.5, across.flip(1), across)
    columns = offsets[:, 1:2] + across
    place = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
    place = place.view(batch, 1, height * width).to(x.device).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, place).view(batch, channels, height, width)


def _padded(x: Tensor, t: Transform) -> Tensor:
    pad = t.crop_padding
    if t.padding_mode == "reflect":
        return functional.pad(x, (pad, pad, pad, pad), mode="reflect")
    batch, channels, height, width = x.shape
    padded = _black(x, t).expand(batch, channels, height + 2 * pad, width + 2 * pad).clone()
    padded[:, :, pad : pad + height, pad : pad + width] = x
    return padded


def _rotate(x: Tensor, t: Transform, degrees: Tensor) -> Tensor:
    """Rotate each image about its centre by its own angle, anticlockwise.

    The nearest pixel is taken, and pixels from outside are black.
    """
    radians = degrees * (math.pi / 180)
    cos, sin, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    height, width = x.shape[-2:]
    # Maps output positions to input positions, in units of half a side. The ratios correct for the unequal
    # units of an image that is not square.
    first = torch.stack([cos, -sin * (height / width), zero], dim=1)
    second = torch.stack([sin * (width / height), cos, zero], dim=1)
    theta = torch.stack([first, second], dim=1).to(x.device, x.dtype)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    inside = (grid.abs() <= 1).all(dim=-1)[:, None]
    turned = functional.grid_sample(x, grid, mode="nearest", padding_mode="border", align_corners=False)
    return torch.where(inside, turned, _black(x, t))


_GREY_32 = Transform(size=32, mean=(0.5,), std=(0.5,))
_GREY_28 = Transform(mean=(0.5,), std=(0.5,))  # MAP's released code does not resize its grey sets
_GREY = Transform()
_COLOUR = Transform(mean=(0.0,) * 3, std=(1.0,) * 3)
_MAP_CIFAR = Transform(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), crop_padding=4, flip=True)
_FEDMR_SVHN = Transform(mean=(0.4376821, 0.4437697, 0.47280442), std=(0.19803012, 0.20101562, 0.19703614))
_FEDMR_CIFAR10 = Transform(
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2615),
    crop_padding=4,
    padding_mode="reflect",
    flip=True,
)
_FEDMR_CIFAR100 = Transform(
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    crop_padding=4,
    flip=True,
    rotation_degrees=15.0,
)
_TINY = Transform(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))  # ImageNet's
_LESIONS = replace(_TINY, centre=200, flamby=FlambyAugment())

TRANSFORMS: dict[tuple[str, str], Transform] = {
    ("cifar10", "fedmr"): _FEDMR_CIFAR10,
    ("cifar10", "map"): _MAP_CIFAR,
    ("cifar100", "fedmr"): _FEDMR_CIFAR100,
    ("cifar100", "map"): _MAP_CIFAR,
    ("cinic10", "fedmr"): _FEDMR_CIFAR10,  # not used in FedMR; treated like CIFAR-10
    ("cinic10", "map"): _MAP_CIFAR,
    ("digits", "fedmr"): _GREY,  # used in neither paper; 8x8, [0, 1]
    ("digits", "map"): _GREY,
    ("fashion-mnist", "fedmr"): _GREY,
    ("fashion-mnist", "map"): _GREY_32,
    ("femnist", "fedmr"): _GREY,  # not used in FedMR; treated like its other grey set
    (
        "femnist",
        "map",
    ): _GREY,  # MAP: 28x28, [0, 1]; its authors' horizontal flip harms characters and is left out
    **{
        ("femnist-letters", style): _GREY for style in ("fedmr", "map", "map-authors")
    },  # MpFedcon: 28x28, [0, 1]
    **{("isic2019", style): _LESIONS for style in ("fedmr", "map", "map-authors")},  # used in FedMR only
    **{
        ("tiny-imagenet", style): _TINY for style in ("fedmr", "map", "map-authors")
    },  # used in neither paper; GLDP does not augment
    ("mnist", "fedmr"): _GREY,  # not used in FedMR; treated like its other grey set
    ("mnist", "map"): _GREY_32,
    ("svhn", "fedmr"): _FEDMR_SVHN,
    ("svhn", "map"): Transform(mean=(0.5,) * 3, std=(0.5,) * 3),  # not used in MAP; scaled like its grey sets
    **{(name, "map-authors"): _GREY_28 for name in ("fashion-mnist", "mnist")},
    **{(name, "map-authors"): _MAP_CIFAR for name in ("cifar10", "cifar100", "cinic10")},
    **{(name, "map-authors"): _GREY for name in ("digits", "femnist")},
    ("svhn", "map-authors"): Transform(mean=(0.5,) * 3, std=(0.5,) * 3),
    **{(name, "plain"): _GREY if info.shape[0] == 1 else _COLOUR for name, info in DATASETS.items()},
}


def transform_for(dataset: str, style: str) -> Transform:
    """Return the transform of a data set in a style.

    Args:
        dataset: A key of DATASETS.
        style: 'map', 'map-authors' or 'fedmr' for those papers' preparation, 'plain' for pixels in [0, 1]
            only.

    Raises:
        UnknownNameError: The data set or the style is unknown.
    """
    name = dataset_name(dataset)
    if style not in STYLES:
        raise UnknownNameError("transform style", style, STYLES)
    return TRANSFORMS[name, style]
