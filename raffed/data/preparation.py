"""How inputs are prepared: the records that say so, without the code that does it. Imports no torch.

`raffed/data/transforms.py` carries these records out. A data set has one record for each style in which it is
known to be prepared (`TRANSFORMS`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from raffed.config.validation import Value, declarations
from raffed.errors import UnknownNameError, UsageError, check_choice, check_range

STYLES = ("fedmr", "map", "map-authors", "plain")
PER_CHANNEL = ("mean", "std")
_FLAMBY_DRAWS = 10  # random numbers for each image; each hole needs two more


@dataclass(frozen=True)
class FlambyAugment:
    """Ranges of the changes that FLamby makes to images of skin lesions.

    `scale` is 1 ± that, `rotation_degrees` ± that, `shear_degrees` at most that, and `shift` ± that many
    pixels, always. `flips` are left-right, up-down or both. `brightness` is ± that, for pixels in [0, 1], and
    `contrast` a factor 1 ± that. `holes` is the largest number of black squares; the smallest is 1.
    """

    scale: float = 0.07
    rotation_degrees: float = 50.0
    shear_degrees: float = 0.1
    shift: float = 12.0
    brightness: float = 0.15
    contrast: float = 0.1
    holes: int = 8
    hole_side: int = 16

    @property
    def draws(self) -> int:
        """Random numbers needed for each image."""
        return _FLAMBY_DRAWS + 2 * self.holes


@dataclass(frozen=True)
class Transform:
    """How the inputs of a data set are prepared and augmented.

    Inputs of any shape can be left as they are (`AS_IT_IS`: no mean and no std). Everything else that a
    transform can do is meant for images [n, channels, H, W].

    Attributes:
        size: Side in pixels after resizing; None keeps the stored size.
        centre: Side of the central square that is kept after resizing; None keeps all.
        mean, std: One number for each channel, in units of pixels in [0, 1]. Both empty: inputs are not
            normalised and need not be images.
        crop_padding: Pixels of padding before a random crop back to the same size; 0 for no crop.
        padding_mode: How the padding is filled.
        flip: Whether images are mirrored left to right with probability 1/2.
        rotation_degrees: The angle is uniform in ± that; nearest pixel.
        flamby: FLamby's augmentation, if any.
        autoaugment: Whether two changes of colour or geometry follow crop and flip, drawn from AutoAugment's
            25 pairs for CIFAR-10. For grey or coloured images.

    Raises:
        UsageError: A number is out of range, or mean and std do not fit together.
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
    autoaugment: bool = False

    def __post_init__(self) -> None:
        if self.size is not None:
            check_range("size", self.size, 1, 4096)
        if self.centre is not None:
            check_range("centre", self.centre, 1, 4096)
        check_range("crop_padding", self.crop_padding, 0, 256)
        check_choice("padding_mode", self.padding_mode, ("zeros", "reflect"))
        check_range("rotation_degrees", self.rotation_degrees, 0, 180)
        if len(self.mean) != len(self.std) or min(self.std, default=1.0) <= 0:
            raise UsageError(f"mean {self.mean} and std {self.std}: each channel needs a mean and a std > 0")
        if self.autoaugment and len(self.mean) not in (0, 1, 3):
            raise UsageError(
                f"autoaugment is for images of 1 or 3 channels, and the transform is for {len(self.mean)}; "
                "leave it out"
            )
        if not self.mean and (self.augments or self.size is not None or self.centre is not None):
            raise UsageError("a transform that changes images needs a mean and a std for each channel")

    @property
    def augments(self) -> bool:
        """Whether batches are changed at random in training."""
        moved = self.crop_padding > 0 or self.flip or self.rotation_degrees > 0
        return moved or self.autoaugment or self.flamby is not None

    def prepared_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one prepared input whose stored shape is `shape`."""
        if self.size is None and self.centre is None:
            return tuple(shape)
        channels, *sides = shape
        height, width = sides if self.size is None else (self.size, self.size)
        side = self.centre or max(height, width)
        return channels, min(side, height), min(side, width)

    def check_fits(self, data: str, shape: tuple[int, ...]) -> None:
        """Raise a UsageError unless inputs of this shape can be prepared in this way.

        Args:
            data: The data set's name, for the message.
            shape: Shape of one stored input, without the axis of the samples.
        """
        if not self.mean:
            return
        if len(shape) != 3:
            raise UsageError(
                f"{data}: the transform is for images (channels, height, width), and one input has the shape "
                f"{shape}; use a transform without mean and std"
            )
        if shape[0] != len(self.mean):
            raise UsageError(
                f"{data}: its images have {shape[0]} channels, but the transform is for {len(self.mean)}"
            )
        side = min(self.prepared_shape(shape)[1:])
        if self.padding_mode == "reflect" and self.crop_padding >= side:
            raise UsageError(
                f"{data}: crop_padding = {self.crop_padding} cannot reflect images with a side of {side} "
                f"pixels; use at most {side - 1}, or padding_mode=zeros"
            )


AS_IT_IS = Transform(mean=(), std=())  # floats and numbers of words stay; pixels in uint8 become [0, 1]


def check_numbers_given(numbers: Mapping[str, Value]) -> None:
    """Raise a UsageError unless these are numbers of a transform, by their names and types.

    Args:
        numbers: Field of `Transform`, except `flamby` → value. `mean` and `std` are one number for each
            channel; a single number stands for one channel.
    """
    known = {name: field for name, field in declarations(Transform).items() if name != "flamby"}
    for name, value in numbers.items():
        if name not in known:
            raise UnknownNameError("name in data.transform_args", name, known)
        if name in PER_CHANNEL:
            _per_channel(name, value)
        else:
            known[name].check(value, "data.transform_args: ")


def with_numbers(transform: Transform, numbers: Mapping[str, Value]) -> Transform:
    """Return a transform in which some numbers are replaced; the same one if there are none.

    Args:
        transform: That of a style.
        numbers: As for `check_numbers_given`.

    Raises:
        UsageError: A name or a number is not possible.
    """
    if not numbers:
        return transform
    check_numbers_given(numbers)
    channels = {name: _per_channel(name, numbers[name]) for name in PER_CHANNEL if name in numbers}
    changed: Callable[..., Transform] = replace
    return changed(transform, **{**numbers, **channels})


def _per_channel(name: str, value: Value) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else (value,)
    numbers = tuple(
        float(number) for number in values if isinstance(number, int | float) and not isinstance(number, bool)
    )
    if not numbers or len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        raise UsageError(
            f"data.transform_args: {name} = {value!r} must have one number for each channel, such as "
            f"{name}=[0.1307]"
        )
    return numbers


def transform_in(style: str, transforms: Mapping[str, Transform], default: Transform | None) -> Transform:
    """Return how a data set is prepared in a style. There is an answer for every data set and every style.

    Args:
        style: One of `STYLES`.
        transforms: The data set's transforms by style.
        default: The data set's transform for every other style. None: floats and integers stay as they are,
            and uint8 is divided by its largest value.

    Raises:
        UnknownNameError: The style does not exist.
    """
    if style not in STYLES:
        raise UnknownNameError("transform style", style, STYLES)
    return transforms.get(style, default or AS_IT_IS)


def transform_text(transform: Transform | None) -> str:
    """Return a transform as JSON; "" for None."""
    return "" if transform is None else json.dumps(asdict(transform), sort_keys=True)


def transform_from(text: str) -> Transform | None:
    """Return the transform that `transform_text` wrote.

    Raises:
        ValueError, TypeError, KeyError: The text is not one that it writes.
        UsageError: A number in it is out of range.
    """
    if not text:
        return None
    values = json.loads(text)
    flamby = values.pop("flamby")
    mean, std = tuple(values.pop("mean")), tuple(values.pop("std"))
    return Transform(mean=mean, std=std, flamby=None if flamby is None else FlambyAugment(**flamby), **values)


# How the published data sets are prepared, by the style of the paper whose experiments are repeated.
#
# The constants are those of the experiments of FedMR (TMLR 2023) and MAP, as in their authors' code.


_GREY_32 = Transform(size=32, mean=(0.5,), std=(0.5,))
_GREY_28 = Transform(mean=(0.5,), std=(0.5,))  # MAP's released code does not resize its grey sets
_GREY = Transform()
_COLOUR = Transform(mean=(0.0,) * 3, std=(1.0,) * 3)
_HALVED = Transform(mean=(0.5,) * 3, std=(0.5,) * 3)
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
_TINY_IMAGENET = Transform(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))  # ImageNet's
_LESIONS = replace(_TINY_IMAGENET, centre=200, flamby=FlambyAugment())


def _styles(
    plain: Transform, fedmr: Transform, map: Transform, map_authors: Transform
) -> dict[str, Transform]:
    return {"plain": plain, "fedmr": fedmr, "map": map, "map-authors": map_authors}


def _alike(plain: Transform, papers: Transform) -> dict[str, Transform]:
    return _styles(plain, papers, papers, papers)


_CIFAR10 = _styles(_COLOUR, _FEDMR_CIFAR10, _MAP_CIFAR, _MAP_CIFAR)
_MNIST = _styles(_GREY, _GREY, _GREY_32, _GREY_28)
_AS_STORED = _alike(_GREY, _GREY)
TRANSFORMS = {  # data set of the catalogue → style → how its inputs are prepared
    "cifar10": _CIFAR10,
    "cifar100": _styles(_COLOUR, _FEDMR_CIFAR100, _MAP_CIFAR, _MAP_CIFAR),
    "cinic10": _CIFAR10,  # not used in FedMR; treated like CIFAR-10
    "digits": _AS_STORED,  # used in neither paper; 8x8, [0, 1]
    "fashion-mnist": _MNIST,
    # Not used in FedMR. MAP: 28x28, [0, 1]; its authors' horizontal flip harms characters and is left out
    "femnist": _AS_STORED,
    "femnist-letters": _AS_STORED,  # MpFedcon: 28x28, [0, 1]
    "isic2019": _alike(_COLOUR, _LESIONS),  # used in FedMR only
    "mnist": _MNIST,  # not used in FedMR; treated like its other grey set
    "svhn": _styles(_COLOUR, _FEDMR_SVHN, _HALVED, _HALVED),  # not used in MAP; scaled like its grey sets
    "tiny-imagenet": _alike(_COLOUR, _TINY_IMAGENET),  # used in neither paper; GLDP does not augment
}
