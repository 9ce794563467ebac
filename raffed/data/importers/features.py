"""Turn given samples into an array that a network can take, or refuse them and name the sample."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raffed.errors import UsageError

Array = npt.NDArray[np.generic]
LARGEST = 1e9
"""Largest magnitude of a feature. A square of it, summed over a layer, is still far inside float32."""
LARGEST_ID = 2**31
CHANNELS = (1, 3, 4)
_FLOATS = "give numbers: astype('float32') for features, astype('int64') for ids, uint8 for pixels"


def as_array(where: str, given: npt.ArrayLike) -> Array:
    """Return an array of NumPy's, or refuse what cannot be made one (lists of unequal lengths, a tensor on a
    GPU) and arrays with masked values.

    A list in which text stands beside other things becomes objects: NumPy would make the text "nan" of NaN.
    """
    check_unmasked(where, given)
    try:
        x = np.asarray(given)
        if x.dtype.kind == "U" and isinstance(given, list | tuple):
            objects = np.asarray(given, dtype=object)
            return x if all(isinstance(one, str) for one in objects.flat) else objects
        return x
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{where} cannot be turned into a NumPy array: {reason}") from error


def check_unmasked(where: str, given: npt.ArrayLike) -> None:
    """Refuse an array with masked values, under which NumPy keeps any numbers."""
    if isinstance(given, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(given)).any():
        raise UsageError(
            f"{where} has {int(masked.sum())} masked values, the first in sample {_sample(masked)}; fill "
            "them or remove these samples"
        )


def as_features(where: str, given: npt.ArrayLike, like: Array | None = None) -> Array:
    """Return samples [N, ...] as uint8, float32 or int64.

    uint8 stays, for pixels. Floats and yes/no become float32. Other integers become int64 and are read as
    ids, such as those of words. uint8 images [N, H, W] get one channel.

    Args:
        where: Beginning of the message.
        given: The samples.
        like: Training samples; the result must have their kind of values and their shape.

    Raises:
        UsageError: The values have another type, are not finite or too large, or the shapes differ.
    """
    x = as_array(where, given)
    if like is not None and not len(x):
        return np.zeros((0, *like.shape[1:]), like.dtype)
    _check_shape(where, x)
    x = _converted(where, x)
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[:, None]
    if _channels_last(x):
        raise UsageError(
            f"{where} has shape {x.shape}, with the channels last, but must be (N, channels, H, W): "
            "transpose(0, 3, 1, 2)"
        )
    if like is not None and x.dtype != like.dtype:
        raise UsageError(
            f"{where} becomes {x.dtype}, and the training samples are {like.dtype}; give one type"
        )
    if like is not None and x.shape[1:] != like.shape[1:]:
        raise UsageError(f"{where} has samples of shape {x.shape[1:]}, the training part {like.shape[1:]}")
    return x


def _channels_last(x: Array) -> bool:
    """Return whether samples look like images [N, H, W, channels]. Floats are images only if H = W."""
    if x.ndim != 4 or x.shape[1] in CHANNELS or x.shape[3] not in CHANNELS:
        return False
    return x.dtype == np.uint8 or (x.dtype == np.float32 and x.shape[1] == x.shape[2])


def _check_shape(where: str, x: Array) -> None:
    if x.ndim == 0 or (x.ndim > 1 and 0 in x.shape[1:]) or not len(x):
        raise UsageError(
            f"{where} has shape {x.shape}, but must have the shape (N, ...) with at least one sample and "
            "one value"
        )
    if x.ndim == 1:
        kind = "objects, perhaps of unequal lengths" if x.dtype.kind == "O" else f"{x.dtype}"
        raise UsageError(
            f"{where} has shape {x.shape} ({kind}), but must have the shape (N, ...): x[:, None] for one "
            "value per sample"
        )


def _converted(where: str, x: Array) -> Array:
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind == "b":
        return x.astype(np.float32)
    if x.dtype.kind in "iu":
        return _ids(where, x)
    if x.dtype.kind == "f":
        return _floats(where, x)
    raise UsageError(f"{where} is {x.dtype} {x.shape}; {_FLOATS}")


def _ids(where: str, x: Array) -> Array:
    low = np.less(x, 0)
    if low.any():
        raise UsageError(
            f"{where} is {x.dtype} with a negative value in sample {_sample(low)}; integers are read as ids, "
            f"which begin at 0: astype('float32') makes them features"
        )
    high = np.greater_equal(x, LARGEST_ID)
    if high.any():
        raise UsageError(
            f"{where} has an id of {LARGEST_ID} or more in sample {_sample(high)}; number them from 0"
        )
    return x.astype(np.int64, copy=False)


def _floats(where: str, x: Array) -> Array:
    if x.dtype.itemsize > 8:
        raise UsageError(f"{where} is {x.dtype}; {_FLOATS}")
    bad = ~np.isfinite(x.astype(np.float64, copy=False))
    if bad.any():
        raise UsageError(
            f"{where} has {int(bad.sum())} values that are NaN or infinite, the first in sample "
            f"{_sample(bad)}; fill them or remove these samples"
        )
    large = np.abs(x.astype(np.float64, copy=False)) > LARGEST
    if large.any():
        raise UsageError(
            f"{where} has values beyond ±{LARGEST:g}, the first in sample {_sample(large)}; float32 training "
            f"would overflow: subtract the mean and divide by the standard deviation"
        )
    return x.astype(np.float32, copy=False)


def _sample(wrong: npt.NDArray[np.bool_]) -> str:
    """Return the place of the first wrong value: number of the sample from 0, and its index if it has one."""
    first = [int(place) for place in np.unravel_index(int(np.argmax(wrong)), wrong.shape)]
    inside = ", ".join(map(str, first[1:]))
    return f"{first[0]} (index [{inside}])" if inside else str(first[0])
