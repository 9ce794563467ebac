"""Transforms against torchvision, AutoAugment against PIL and scipy, FLamby's changes as often and as far as
published, and inputs that are no images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage
from torch import Tensor

from raffed import Data, Federation, RunConfig
from raffed.config.validation import Json
from raffed.data.augmentation import CHANGES, DRAWS, PAIRS, amount, apply, apply_flamby
from raffed.data.catalogue import DATASETS
from raffed.data.preparation import AS_IT_IS, STYLES, TRANSFORMS, FlambyAugment, Transform, with_numbers
from raffed.data.transforms import (
    augment,
    augment_by,
    augment_draws,
    prepare_images,
    prepare_inputs,
    transform_for,
)
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run

COLOUR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}


def images(n: int, channels: int = 3, side: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, channels, side, side), dtype=np.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_resizing_2_to_4_pixels_interpolates_a_quarter_of_the_way() -> None:
    """align_corners=False: output pixel centres lie at -1/4, 1/4, 3/4, 5/4 of the input's, clamped at the
    ends.
    """
    raw = np.array([0, 4], dtype=np.uint8).reshape(1, 1, 1, 2).repeat(2, 2)
    got = prepare_images(raw, Transform(size=4), 4)
    assert got[0, 0].tolist() == [[0.0, 0.25, 0.75, 1.0]] * 4


def test_preparing_is_to_tensor_and_normalise_for_any_number_of_read_only_images() -> None:
    raw, t = images(3), Transform(**COLOUR)
    expected = [vision.normalize(vision.to_tensor(x.transpose(1, 2, 0)), t.mean, t.std) for x in raw]
    raw.setflags(write=False)
    torch.testing.assert_close(prepare_images(raw, t, 255), torch.stack(expected), rtol=0, atol=0)
    assert prepare_images(raw[:0], t, 255).shape == (0, 3, 32, 32)
    for wrong in (
        np.zeros((2, 1, 8, 8), np.uint8),
        np.zeros((2, 3, 8, 8), int),
        np.zeros((3, 8, 8), np.uint8),
    ):
        with pytest.raises(UsageError, match=r"must be uint8 or floats \(n, 3, H, W\)"):
            prepare_images(wrong, t, 255)


def every_crop(raw: np.ndarray, t: Transform) -> torch.Tensor:
    """All (2p+1)² crops of one raw image and their mirror images, padded raw and then prepared, by
    torchvision.
    """
    mode = "constant" if t.padding_mode == "zeros" else "reflect"
    padded = vision.pad(torch.from_numpy(raw), [t.crop_padding], padding_mode=mode)
    side, shifts = raw.shape[-1], range(2 * t.crop_padding + 1)
    crops = [vision.crop(padded, top, left, side, side) for top in shifts for left in shifts]
    crops += [vision.hflip(crop) for crop in crops] if t.flip else []
    return prepare_images(torch.stack(crops).numpy(), t, 255)


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("flip", [False, True])
def test_augmented_images_are_torchvisions_crops_and_all_of_them_occur(mode: str, flip: bool) -> None:
    t = Transform(**COLOUR, crop_padding=2, padding_mode=mode, flip=flip)
    raw = images(1, side=8)
    possible = every_crop(raw[0], t)
    many = augment(prepare_images(raw, t, 255).expand(2000, -1, -1, -1), t, generator())
    equal = (many[:, None] == possible[None]).flatten(2).all(dim=2)
    assert equal.any(dim=1).all(), "nothing but crops"
    assert equal.any(dim=0).all(), f"all {len(possible)} of them"


def test_half_of_the_images_are_flipped() -> None:
    t, random = Transform(flip=True), generator()
    x = torch.arange(8.0).expand(4000, 1, 8, 8)
    flipped = int((augment(x, t, random)[:, 0, 0, 0] == 7).sum())
    assert abs(flipped - 2000) < 4 * 31.6, "four standard deviations of Binomial(4000, 1/2)"
    state = random.get_state()
    assert augment(x, Transform(), random) is x
    assert torch.equal(random.get_state(), state), "without anything to do nothing is drawn"


@pytest.mark.parametrize("style", ["map", "fedmr"])
def test_the_same_generator_gives_the_same_bits_of_one_draw_and_x_is_left_alone(style: str) -> None:
    t, random, reference = transform_for("cifar100", style), generator(), generator()
    x = prepare_images(images(6), t, 255)
    before = x.clone()
    assert torch.equal(augment(x, t, random), augment(x, t, generator()))
    assert torch.equal(x, before)
    torch.rand((6, 4), generator=reference, dtype=torch.float64)
    assert torch.equal(random.get_state(), reference.get_state())


@pytest.mark.parametrize("width", [32, 48], ids=["square", "not square: turned in pixels, not in percent"])
def test_rotation_is_torchvisions_nearest_rotation_of_the_raw_image(width: int) -> None:
    t = Transform(**COLOUR, rotation_degrees=15.0)
    raw = images(20, side=48)[:, :, :32, :width].copy()
    angles = (2 * torch.rand((20, 4), generator=generator(), dtype=torch.float64)[:, 3] - 1) * 15
    turned = [
        vision.rotate(torch.from_numpy(x), float(a), fill=[0.0]) for x, a in zip(raw, angles, strict=True)
    ]
    expected = prepare_images(torch.stack(turned).numpy(), t, 255)
    got = augment(prepare_images(raw, t, 255), t, generator())
    agree = (got == expected).all(dim=1).float().mean()
    assert agree > 0.995, "all but pixels on the border between two neighbours"
    assert -15 <= angles.min() < -10
    assert 10 < angles.max() <= 15


def test_every_data_set_has_every_style_and_plain_neither_augments_nor_moves_a_pixel() -> None:
    for name, info in DATASETS.items():
        assert set(TRANSFORMS[name]) == set(STYLES), name
        assert {len(t.mean) for t in TRANSFORMS[name].values()} == {info.shape[0]}, name
        t = transform_for(name, "plain")
        assert not t.augments
        assert t.prepared_shape(info.shape) == info.shape
        raw = np.full((1, *info.shape), 51, np.uint8)
        assert prepare_images(raw, t, 255).unique().tolist() == pytest.approx([0.2])


def configured(args: dict[str, Json], **data: str) -> RunConfig:
    section = replace(Data(transform_args=args), **data)  # type: ignore[arg-type]
    return RunConfig(data=section, federation=Federation(rounds=1))


def test_pixels_are_normalised_by_the_mean_and_the_deviation_that_were_given() -> None:
    setup = prepare_run(configured({"mean": [0.1307], "std": [0.3081]}))
    raw = setup.dataset.x[:5]
    found = prepare_inputs(raw, setup.data.transform, setup.dataset.max_value).numpy()
    np.testing.assert_allclose(found, (raw / 16 - 0.1307) / 0.3081, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"means": [0.1]}, "unknown name in data.transform_args 'means'; nearest: mean"),
        ({"std": [0.0]}, "each channel needs a mean and a std > 0"),
        ({"mean": [0.1, 0.2], "std": [1, 1]}, "images have 1 channels, but the transform is for 2"),
        ({"flip": 3}, "flip = 3 is an int, but must be a bool"),
        ({"crop_padding": 8, "padding_mode": "reflect"}, "images with a side of 8 pixels; use at most 7, or"),
    ],
)
def test_a_wrong_number_is_refused_before_the_data_are_read(args: dict[str, Json], said: str) -> None:
    def read() -> None:
        raise AssertionError("the data would be read now")

    with pytest.raises(UsageError, match=said):
        prepare_run(configured(args), read)


def test_padding_may_reflect_all_but_one_pixel_of_a_side_or_be_zeros_of_any_width() -> None:
    images = prepare_images(np.zeros((2, 1, 8, 8), np.uint8), Transform())
    for padding, mode in ((7, "reflect"), (8, "zeros")):
        t = Transform(crop_padding=padding, padding_mode=mode)
        t.check_fits("digits", (1, 8, 8))
        assert augment(images, t, torch.Generator()).shape == images.shape
    with pytest.raises(UsageError, match="a side of 8 pixels"):
        Transform(size=16, centre=8, crop_padding=8, padding_mode="reflect").check_fits("x", (1, 32, 32))


ROWS = 24
TABLE = np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32)
WORDS = np.arange(ROWS * 4, dtype=np.int64).reshape(ROWS, 4)


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        (TABLE, torch.from_numpy(TABLE)),
        (WORDS, torch.from_numpy(WORDS)),
        (np.array([[0, 51, 255]], np.uint8), torch.tensor([[0.0, 0.2, 1.0]])),
        (np.array([[True, False]]), torch.tensor([[1.0, 0.0]])),
        (np.zeros((0, 7), np.int32), torch.zeros((0, 7), dtype=torch.int64)),
    ],
)
def test_without_a_transform_inputs_are_as_their_type_says(given: np.ndarray, prepared: Tensor) -> None:
    found = prepare_inputs(given, AS_IT_IS)
    assert found.dtype == prepared.dtype
    torch.testing.assert_close(found, prepared, rtol=0, atol=1e-7)
    assert AS_IT_IS.prepared_shape(given.shape[1:]) == given.shape[1:]


def test_numbers_count_in_the_identity_and_none_leave_it_as_it_is() -> None:
    usual = RunConfig(federation=Federation(rounds=1)).identity()
    assert configured({}).identity() == usual
    assert configured({"std": [0.3]}).identity() != usual


SIDE = 16
Pixels = NDArray[np.uint8]


def pictures() -> Pixels:
    """Noise, a slope of colours, one colour only, and noise of little contrast."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (SIDE, SIDE, 3))
    slope = np.add.outer(6 * np.arange(SIDE), 4 * np.arange(SIDE))[..., None] + np.array([0, 20, 50])
    flat = np.full((SIDE, SIDE, 3), 7)
    faint = rng.normal(100, 9, (SIDE, SIDE, 3)).clip(0, 255)
    return np.stack([noise, slope, flat, faint]).astype(np.uint8)


def moved(
    a: float, b: float, c: float, d: float, down: float = 0, across: float = 0
) -> Callable[[Pixels], Pixels]:
    centre = np.array([SIDE / 2 + 0.5] * 2)
    matrix = np.array([[a, b], [c, d]])
    offset = centre - matrix @ centre + np.array([down, across])

    def change(image: Pixels) -> Pixels:
        channels = [ndimage.affine_transform(image[..., i], matrix, offset) for i in range(3)]
        return np.stack(channels, axis=-1)

    return change


def coloured(change: Callable[[Image.Image], Image.Image]) -> Callable[[Pixels], Pixels]:
    return lambda image: np.asarray(change(Image.fromarray(image)))


REFERENCES: Mapping[str, Callable[[float], Callable[[Pixels], Pixels]]] = {
    "shear_y": lambda v: moved(1, 0, v, 1),
    "translate_x": lambda v: moved(1, 0, 0, 1, across=SIDE * v),
    "translate_y": lambda v: moved(1, 0, 0, 1, down=SIDE * v),
    "rotate": lambda v: moved(*(f(np.deg2rad(v)) for f in (np.cos, lambda x: -np.sin(x), np.sin, np.cos))),
    "solarize": lambda v: coloured(lambda image: ImageOps.solarize(image, v)),
    "posterize": lambda v: coloured(lambda image: ImageOps.posterize(image, round(v))),
    "contrast": lambda v: coloured(lambda image: ImageEnhance.Contrast(image).enhance(v)),
    "color": lambda v: coloured(lambda image: ImageEnhance.Color(image).enhance(v)),
    "brightness": lambda v: coloured(lambda image: ImageEnhance.Brightness(image).enhance(v)),
    "sharpness": lambda v: coloured(lambda image: ImageEnhance.Sharpness(image).enhance(v)),
    "autocontrast": lambda _: coloured(ImageOps.autocontrast),
    "equalize": lambda _: coloured(ImageOps.equalize),
    "invert": lambda _: coloured(ImageOps.invert),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_gives_the_pixels_of_pil_or_of_scipy(name: str) -> None:
    change, least, most = CHANGES[name]
    before = pictures()
    batch = torch.from_numpy(before).permute(0, 3, 1, 2).float()
    for share in (0.03, 0.5, 0.77):
        value = least + share * (most - least)
        found = change(batch, torch.full((len(batch),), value)).permute(0, 2, 3, 1).numpy()
        wanted = np.stack([REFERENCES[name](value)(one) for one in before])
        np.testing.assert_array_equal(found, wanted)


def test_there_are_25_pairs_and_each_is_drawn_equally_often() -> None:
    """The 15th pair, solarize with 0.5 and invert with 0, is drawn from 14/25 on and does nothing at 0.5. A
    range has ten parts from its weakest amount to its strongest.
    """
    assert len(PAIRS) == 25
    x = torch.rand(1, 3, SIDE, SIDE)
    none, one = torch.zeros(3, 1, 1), torch.ones(3, 1, 1)

    def changed(pair: float, share: float) -> bool:
        draws = torch.tensor([[pair, share, 0.5, share, 0.5]], dtype=torch.float64)
        return not torch.equal(apply(x, none, one, draws), x)

    assert [changed(14.01 / 25, share) for share in (0.49, 0.5)] == [True, False]
    # The 16th: equalize with 0.2, autocontrast with 0.6
    assert [changed(15.01 / 25, share) for share in (0.59, 0.6)] == [True, False]
    parts, u = torch.tensor([0, 4, 9]), torch.tensor([0.0, 0.5, 1.0])
    torch.testing.assert_close(amount("rotate", parts, u), torch.tensor([-30.0, -3.0, 30.0]))


def test_a_preparation_takes_it_by_its_number_and_other_transforms_keep_their_random_numbers() -> None:
    plain = transform_for("cifar10", "fedmr")
    more = with_numbers(plain, {"autoaugment": True})
    assert (plain.autoaugment, more.autoaugment, more.augments) == (False, True, True)
    drawn = [augment_draws(2, one, torch.Generator().manual_seed(1)) for one in (plain, more)]
    assert [one.shape[1] for one in drawn] == [4, 4 + DRAWS]
    x = torch.rand(2, 3, SIDE, SIDE)
    still = drawn[1].clone()
    still[:, [5, 7]] = 0.99
    torch.testing.assert_close(augment_by(x, more, still), augment_by(x, plain, still[:, :4]), rtol=0, atol=0)


NAMES = ("scale", "rotation_degrees", "shear_degrees", "shift", "brightness", "contrast")
STILL = {**dict.fromkeys(NAMES, 0.0), "holes": 0}
MEAN, STD = torch.tensor([0.4, 0.5, 0.6]).view(-1, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(-1, 1, 1)
MANY = 2000
FOUR_SD = 4 * math.sqrt(MANY) / 2  # of Binomial(MANY, 1/2)


def bent(raw: Tensor, seed: int = 0, **parts: float) -> Tensor:
    """Raw pixels in [0, 1], augmented with these parts alone, as raw pixels again."""
    t = FlambyAugment(**{**STILL, **parts})
    draws = torch.rand((len(raw), t.draws), generator=generator(seed), dtype=torch.float64)
    return apply_flamby((raw - MEAN) / STD, t, MEAN, STD, draws) * STD + MEAN


def test_an_image_is_one_of_its_four_reflections_half_of_the_time_itself() -> None:
    x = torch.rand(1, 3, 8, 8, generator=generator(9))
    got = bent(x.expand(MANY, -1, -1, -1))
    options = [x, x.flip(3), x.flip(2), x.flip(2, 3)]
    share = [int((got - one).abs().amax((1, 2, 3)).lt(1e-4).sum()) for one in options]
    assert sum(share) == MANY
    assert abs(share[0] - MANY / 2) < FOUR_SD
    for n in share[1:]:
        assert abs(n - MANY / 6) < 4 * math.sqrt(MANY * 5 / 36)


def test_light_changes_half_of_the_images_by_a_factor_and_a_sum_within_their_limits() -> None:
    """Raw a·x + b with a in [0.9, 1.1] and b in ±0.15, seen at two grey levels that no clipping reaches."""
    x = torch.full((MANY, 3, 2, 2), 0.5)
    x[:, :, :, 1] = 0.7
    got = bent(x, brightness=0.15, contrast=0.1)[:, 0].flatten(1)
    low, high = got.amin(1), got.amax(1)
    factor = (high - low) / 0.2
    added = low - 0.5 * factor
    changed = (factor - 1).abs() > 1e-5
    assert abs(int(changed.sum()) - MANY / 2) < FOUR_SD
    assert (factor - 1).abs().max() <= 0.1 + 1e-4
    assert added.abs().max() <= 0.15 + 1e-4
    assert (factor[changed].std() > 0.05, added[changed].std() > 0.08) == (True, True)
    assert bent(torch.ones(200, 3, 2, 2), brightness=0.15).max() <= 1 + 1e-6, "light is clipped to white"


def test_half_of_the_images_get_1_to_8_black_squares_of_16_pixels() -> None:
    got = bent(torch.ones(400, 3, 64, 64), holes=8)
    black = got.abs().amax(1) < 1e-6
    area = black.flatten(1).sum(1)
    assert abs(int((area > 0).sum()) - 200) < 4 * 10
    assert set(area.tolist()) & {0} == {0}
    assert area[area > 0].min() == 16 * 16
    assert area.max() <= 8 * 16 * 16
    assert ((got - 1).abs().amax(1) < 1e-5).logical_xor(black).all(), (
        "a pixel is black in all channels or untouched"
    )
    assert black.any(0).any(0).all(), "up to the border on both sides"
    assert black.any(0).any(1).all()


def test_a_turned_image_is_torchvision_s_bilinear_rotation_away_from_the_border() -> None:
    raw = vision.gaussian_blur(torch.rand(20, 3, 65, 65, generator=generator(4)), 9)
    t = FlambyAugment(**{**STILL, "rotation_degrees": 50.0})
    draws = torch.rand((20, t.draws), generator=generator(3), dtype=torch.float64)
    got = apply_flamby((raw - MEAN) / STD, t, MEAN, STD, draws) * STD + MEAN
    seen = 0
    for x, y, row in zip(raw, got, draws.tolist(), strict=True):
        if row[3] >= 0.5:
            angle = (4 * row[1] - 1) * 50 if row[1] < 0.5 else 0.0
            turned = vision.rotate(x, angle, interpolation=vision.InterpolationMode.BILINEAR)
            torch.testing.assert_close(y[:, 20:45, 20:45], turned[:, 20:45, 20:45], rtol=0, atol=1e-3)
            seen += angle != 0
    assert seen >= 2


def test_a_shift_moves_every_image_by_up_to_so_many_pixels() -> None:
    many = 400
    ramp = torch.arange(64.0).expand(many, 3, 64, 64) / 100
    moved = (bent(ramp, shift=12.0)[:, 0, 32, 31:33].mean(1) - 0.315) * 100
    assert moved.abs().max() < 12.01
    assert moved.abs().max() > 11.5
    assert abs(moved.mean()) < 5 * 12 / math.sqrt(3 * many)


def test_fedmr_s_lesions_are_cut_to_200_normalised_and_bent_as_flamby_s() -> None:
    """docs/papers/fedmr.md §E1 names scale 0.07, rotation by 50° and the crop of 200 pixels of 224, so a
    shift of up to 12; FLamby's script besides brightness 0.15, contrast 0.1, shear by 0.1° and 1 to 8 holes
    of 16 pixels.
    """
    t = transform_for("isic2019", "fedmr")
    assert t.flamby == FlambyAugment(0.07, 50.0, 0.1, (224 - 200) / 2, 0.15, 0.1, 8, 16)
    raw = np.random.default_rng(0).integers(0, 256, (2, 3, 224, 224), dtype=np.uint8)
    x = prepare_images(raw, t, 255)
    assert tuple(x.shape[1:]) == t.prepared_shape((3, 224, 224)) == (3, 200, 200)
    wanted = vision.normalize(torch.from_numpy(raw[:, :, 12:212, 12:212]).float() / 255, t.mean, t.std)
    torch.testing.assert_close(x, wanted)
    assert t.prepared_shape((3, 180, 300)) == (3, 180, 200)
    before = x.clone()
    one, same, other = (augment(x, t, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert torch.equal(x, before)
    assert not torch.equal(one, other)
