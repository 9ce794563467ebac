"""AutoAugment gives the pixels of PIL or scipy, and FLamby's changes happen as often and as far as
published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage
from torch import Tensor

from raffed.data.augmentation import CHANGES, DRAWS, PAIRS, amount, apply, apply_flamby
from raffed.data.preparation import FlambyAugment, with_numbers
from raffed.data.transforms import augment, augment_by, augment_draws, prepare_images, transform_for

SIDE = 16
Pixels = NDArray[np.uint8]


def images() -> Pixels:
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
    before = images()
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


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
