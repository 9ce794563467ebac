"""Turn a user's arrays into the few forms that raffed works with, or refuse them with a one-line error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.data.files import InputArray, IntArray
from raffed.data.importers.values import check_unmasked
from raffed.errors import UsageError

Given = npt.ArrayLike
FEW = 4  # images with at most so many channels may have them on the last axis
MOST = 2**62  # natural clients have smaller numbers


def inputs(where: str, given: Given, max_value: int) -> InputArray:
    """Return inputs [N, ...] as uint8, float32 or int64. Images in uint8 [N, H, W] get one channel.

    Args:
        where: The beginning of the message of a UsageError.
        given: The inputs.
        max_value: The largest value that uint8 may have.
    """
    x = _array(where, given)
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise UsageError(
            f"{where} has shape {x.shape}, but must have the shape (N, ...), with N > 0 samples of one shape"
        )
    if x.dtype == np.uint8:
        return _pixels(where, x, max_value)
    if x.dtype.kind == "f":
        return _finite(where, x)
    if x.dtype.kind == "b":
        return x.astype(np.float32)
    if x.dtype.kind not in "iu":
        raise UsageError(f"{where} is {x.dtype} {x.shape}, but must be uint8 for pixels, floats, or integers")
    return x.astype(np.int64, copy=False)


def labels(where: str, given: Given, count: int) -> IntArray:
    """Return labels of any integer type as int64 [N], one for each of `count` samples."""
    y = _array(where, given)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "biu"):
        raise UsageError(f"{where} is {y.dtype} {y.shape}, but must be one integer per sample, ({count},)")
    if len(y) != count:
        raise UsageError(f"{where} has {len(y)} entries, but there are {count} samples")
    if y.size and int(y.max()) >= MOST:
        raise UsageError(f"{where} goes from {int(y.min())} to {int(y.max())}, but must stay below 2^62")
    return y.astype(np.int64, copy=False)


def below(where: str, y: IntArray, num_classes: int) -> IntArray:
    """Return the labels, all of which must be classes from 0 to num_classes - 1."""
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        raise UsageError(
            f"{where} goes from {int(y.min())} to {int(y.max())}, but must stay within 0 to {num_classes - 1}"
        )
    return y


def owners(where: str, given: Given, count: int, least: int = 0) -> IntArray:
    """Return the natural client of each of `count` samples, int64 [N]; -1 for none, if `least` allows it."""
    found = labels(where, given, count)
    if found.size and int(found.min()) < least:
        raise UsageError(f"{where} goes from {int(found.min())}, but must not be below {least}")
    return found


def _pixels(where: str, x: InputArray, max_value: int) -> InputArray:
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim == 4 and x.shape[1] > FEW >= x.shape[3]:
        raise UsageError(
            f"{where} has shape {x.shape}, with the channels last, but must be (N, channels, H, W): "
            "transpose(0, 3, 1, 2)"
        )
    pixels = x.astype(np.uint8, copy=False)
    if max_value < 255 and x.size and int(pixels.max()) > max_value:
        raise UsageError(
            f"{where} goes up to {int(pixels.max())}, but max_value, the pixel that means 1.0, is {max_value}"
        )
    return pixels


def _finite(where: str, x: InputArray) -> InputArray:
    with np.errstate(over="ignore"):
        found = x.astype(np.float32, copy=False)
    wrong = ~np.isfinite(found)
    if wrong.any():
        first = int(np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))[0])
        raise UsageError(
            f"{where} has {int(wrong.sum())} values that are not finite in float32, the first in sample "
            f"{first}; fill in or leave out missing values"
        )
    return found


def _array(where: str, given: Given) -> InputArray:
    check_unmasked(where, given)
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:  # such as lists of unequal lengths, or a tensor on a GPU
        raise UsageError(f"{where} is not a NumPy array and cannot be turned into one: {error}") from error
