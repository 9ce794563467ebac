"""Preparation of inputs (scaling, resizing, normalising) and augmentation of batches (crop, flip, rotation).

Augmentation works on prepared images. The authors' pipelines augment raw images and normalise afterwards. So
pixels that come from outside the image are raw black here: (0 - mean) / std of their channel. What is to be
done is said by a `Transform` (raffed/data/preparation.py).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from raffed.data import augmentation
from raffed.data.augmentation import apply_flamby
from raffed.data.catalogue import dataset_name
from raffed.data.files import InputArray
from raffed.data.preparation import TRANSFORMS, Transform, transform_in
from raffed.errors import UsageError


def prepare_inputs(inputs: InputArray, t: Transform, max_value: int = 255) -> Tensor:
    """Prepare inputs of any shape: images, rows of a table, sequences of numbers of words.

    Args:
        inputs: [n, ...] of uint8, bool, a float or an integer type; n may be 0. The array is not changed.
        t: The transform. Without mean and std, uint8 is divided by `max_value`, floats and bool become
            float32, and other integers, which number words or categories, become int64.
        max_value: The value in uint8 that means 1.0.

    Returns:
        float32 or int64 [n, ...].

    Raises:
        UsageError: The inputs have another type, or are not the images that the transform is for.
    """
    if t.mean:
        return prepare_images(inputs, t, max_value)
    if inputs.dtype == np.uint8:
        return torch.from_numpy(inputs.astype(np.float32)).div_(max_value)
    if inputs.dtype.kind not in "biuf":
        raise UsageError(f"inputs are {inputs.dtype}, but must be numbers")
    return torch.from_numpy(inputs.astype(np.int64 if inputs.dtype.kind in "iu" else np.float32))


def prepare_images(images: InputArray, t: Transform, max_value: int = 255) -> Tensor:
    """Prepare images: divide by `max_value`, resize (bilinear, align_corners=False), cut, and normalise.

    Args:
        images: uint8 [n, C, H, W], or floats that are pixels in [0, 1] already and are not divided; n may be
            0. The array is not changed.
        t: The transform.
        max_value: The pixel value that means 1.0.

    Returns:
        float32 [n, C, H', W'].

    Raises:
        UsageError: The images have another type or shape.
    """
    is_bytes = images.dtype == np.uint8
    if images.ndim != 4 or images.shape[1] != len(t.mean) or not (is_bytes or images.dtype.kind == "f"):
        raise UsageError(
            f"images are {images.dtype} {images.shape}, but must be uint8 or floats (n, {len(t.mean)}, H, W)"
        )
    x = torch.from_numpy(images.astype(np.float32))
    if is_bytes:
        x.div_(max_value)
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

    Those of `flamby` and then those of `autoaugment` follow in further columns.
    """
    more = (t.flamby.draws if t.flamby else 0) + (augmentation.DRAWS if t.autoaugment else 0)
    return torch.rand((batch, 4 + more), generator=generator, dtype=torch.float64)


def augment_by(x: Tensor, t: Transform, draws: Tensor) -> Tensor:
    """Augment the batch x [B, C, H, W] by the numbers `draws` [B, ...], image by image."""
    if t.flamby is not None:
        numbers = draws[:, 4 : 4 + t.flamby.draws]
        x = apply_flamby(x, t.flamby, _per_channel(t.mean, x), _per_channel(t.std, x), numbers)
    if t.crop_padding or t.flip:
        x = _crop_and_flip(x, t, draws)
    if t.autoaugment:
        numbers = draws[:, -augmentation.DRAWS :]
        x = augmentation.apply(x, _per_channel(t.mean, x), _per_channel(t.std, x), numbers)
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


def transform_for(dataset: str, style: str) -> Transform:
    """Return the transform of a data set of the catalogue in a style.

    Args:
        dataset: A key of DATASETS.
        style: 'map', 'map-authors' or 'fedmr' for those papers' preparation, 'plain' for pixels in [0, 1]
            only.

    Raises:
        UnknownNameError: The data set or the style is unknown.
    """
    name = dataset_name(dataset)
    return transform_in(style, TRANSFORMS[name], None)
