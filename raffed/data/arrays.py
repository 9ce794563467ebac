"""Turn a user's arrays into the one form that raffed works with, or refuse them with a one-line error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.data.files import ByteArray, IntArray
from raffed.errors import UsageError

Given = npt.ArrayLike
FEW = 4  # images with at most so many channels may have them on the last axis


def images(where: str, given: Given, max_value: int) -> ByteArray:
    """Return images as uint8 [N, channels, H, W]. Images [N, H, W] get one channel.

    `where` is the beginning of the message of a UsageError.
    """
    x = _array(where, given)
    if x.ndim == 3:
        x = x[:, None]
    if x.dtype != np.uint8:
        scaled = f"(images * {max_value}).round().astype('uint8') makes them, where they lie in [0, 1]"
        how = scaled if x.dtype.kind == "f" else "astype('uint8') makes them"
        raise UsageError(f"{where} is {x.dtype} {x.shape}, wanted uint8 from 0 to {max_value}: {how}")
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise UsageError(
            f"{where} has shape {x.shape}, wanted (N, channels, H, W), or (N, H, W) with one channel"
        )
    if x.shape[1] > FEW >= x.shape[3]:
        raise UsageError(
            f"{where} has shape {x.shape}, the channels last; wanted (N, channels, H, W): transpose(0, 3, 1, "
            f"2)"
        )
    if max_value < 255 and x.size and int(x.max()) > max_value:
        raise UsageError(
            f"{where} goes up to {int(x.max())}, and max_value, the pixel that means 1.0, is {max_value}"
        )
    return x.astype(np.uint8, copy=False)


def labels(where: str, given: Given, count: int, num_classes: int) -> IntArray:
    """Return labels of any integer type as int64 [N] in 0..num_classes-1, one for each of `count` images."""
    y = _array(where, given)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "biu"):
        raise UsageError(f"{where} is {y.dtype} {y.shape}, wanted one integer an image, ({count},)")
    if len(y) != count:
        raise UsageError(f"{where} has {len(y)} entries for {count} images")
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        raise UsageError(f"{where} goes from {int(y.min())} to {int(y.max())}, wanted 0 to {num_classes - 1}")
    return y.astype(np.int64, copy=False)


def _array(where: str, given: Given) -> npt.NDArray[np.generic]:
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:  # such as lists of unequal lengths, or a tensor on a GPU
        raise UsageError(f"{where} is no array of NumPy's, and cannot be made one: {error}") from error
