"""FLamby's augmentation: each part alone, how often it happens and what it does; and the cut that both
parts share.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from torch import Tensor

from raffed.data.augmentation import apply_flamby
from raffed.data.preparation import FlambyAugment, Transform
from raffed.data.transforms import augment, prepare_images, transform_for

STILL = {
    "scale": 0.0,
    "rotation_degrees": 0.0,
    "shear_degrees": 0.0,
    "shift": 0.0,
    "brightness": 0.0,
    "contrast": 0.0,
    "holes": 0,
}
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


def test_fedmrs_lesions_are_bent_as_flambys() -> None:
    """docs/papers/fedmr.md §E1 names scale 0.07, rotation by 50° and the crop of 200 pixels of 224, so a
    shift of up to 12; FLamby's script besides brightness 0.15, contrast 0.1, shear by 0.1° and 1 to 8 holes
    of 16 pixels.
    """
    t = transform_for("isic2019", "fedmr").flamby
    assert t is not None
    assert (t.scale, t.rotation_degrees, t.shear_degrees, t.shift) == (0.07, 50.0, 0.1, (224 - 200) / 2)
    assert (t.brightness, t.contrast, t.holes, t.hole_side) == (0.15, 0.1, 8, 16)


def image(side: int = 8) -> Tensor:
    return torch.rand(1, 3, side, side, generator=generator(9))


def test_without_light_holes_and_moves_an_image_is_one_of_its_four_reflections_half_of_the_time_itself() -> (
    None
):
    x = image()
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
    got = (
        bent(x, brightness=0.15, contrast=0.1)[:, 0].amin(1),
        bent(x, brightness=0.15, contrast=0.1)[:, 0].amax(1),
    )
    low, high = got[0].amin(1), got[1].amax(1)
    factor = (high - low) / 0.2
    added = low - 0.5 * factor
    changed = (factor - 1).abs() > 1e-5
    assert abs(int(changed.sum()) - MANY / 2) < FOUR_SD
    assert (factor - 1).abs().max() <= 0.1 + 1e-4
    assert added.abs().max() <= 0.15 + 1e-4
    assert factor[changed].std() > 0.05
    assert added[changed].std() > 0.08


def test_light_is_clipped_to_black_and_white() -> None:
    got = bent(torch.ones(200, 3, 2, 2), brightness=0.15)
    assert got.max() <= 1 + 1e-6


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


def test_rotation_turns_half_of_the_images_by_up_to_50_degrees_about_the_centre() -> None:
    """A dot at distance r from the centre; where it lands tells the angle."""
    x = torch.zeros(MANY, 3, 65, 65)
    x[:, :, 32, 52:55] = 1
    place = torch.arange(65.0) - 32
    inside = torch.hypot(place[:, None], place) < 30  # beyond are the mirror images
    got = bent(x, rotation_degrees=50.0)[:, 0].clamp(0) * inside
    weight = got / got.sum((1, 2), keepdim=True)
    down, across = (weight.sum(2) * place).sum(1), (weight.sum(1) * place).sum(1)
    angle = torch.rad2deg(torch.atan2(down, across.abs()))
    assert abs(int((angle.abs() > 0.5).sum()) - MANY * 0.495) < FOUR_SD
    assert angle.abs().max() < 51
    assert angle.max() > 45
    assert angle.min() < -45
    assert (torch.hypot(down, across) - 21).abs().max() < 0.5


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


def test_the_border_is_mirrored_and_never_black() -> None:
    got = bent(
        torch.full((300, 3, 16, 16), 0.8), scale=0.07, rotation_degrees=50.0, shear_degrees=5.0, shift=12.0
    )
    torch.testing.assert_close(got, torch.full_like(got, 0.8), rtol=0, atol=1e-5)


def test_a_shift_moves_every_image_by_up_to_so_many_pixels() -> None:
    ramp = torch.arange(64.0).expand(MANY, 3, 64, 64) / 100
    moved = (bent(ramp, shift=12.0)[:, 0, 32, 31:33].mean(1) - 0.315) * 100
    assert moved.abs().max() < 12.01
    assert moved.abs().max() > 11.5
    assert abs(moved.mean()) < 5 * 12 / math.sqrt(3 * MANY)


def test_flamby_s_lesions_are_cut_to_200_and_normalised_as_imagenet_without_augmentation() -> None:
    t = transform_for("isic2019", "fedmr")
    raw = np.random.default_rng(0).integers(0, 256, (2, 3, 224, 224), dtype=np.uint8)
    x = prepare_images(raw, t, 255)
    assert tuple(x.shape[1:]) == t.prepared_shape((3, 224, 224)) == (3, 200, 200)
    wanted = vision.normalize(torch.from_numpy(raw[:, :, 12:212, 12:212]).float() / 255, t.mean, t.std)
    torch.testing.assert_close(x, wanted)


def test_the_whole_augmentation_is_a_function_of_the_generator_and_leaves_its_input_alone() -> None:
    t = transform_for("isic2019", "fedmr")
    assert t.augments
    x = prepare_images(np.random.default_rng(0).integers(0, 256, (3, 3, 224, 224), dtype=np.uint8), t, 255)
    before = x.clone()
    one, other = augment(x, t, generator(1)), augment(x, t, generator(1))
    assert torch.equal(one, other)
    assert torch.equal(x, before)
    assert one.shape == x.shape
    assert not torch.equal(one, augment(x, t, generator(2)))


@pytest.mark.parametrize(
    ("shape", "wanted"), [((3, 224, 224), (3, 200, 200)), ((3, 180, 300), (3, 180, 200))]
)
def test_a_centre_is_cut_where_there_is_more(
    shape: tuple[int, int, int], wanted: tuple[int, int, int]
) -> None:
    t = Transform(mean=(0.0,) * 3, std=(1.0,) * 3, centre=200)
    assert t.prepared_shape(shape) == wanted
    assert prepare_images(np.zeros((1, *shape), dtype=np.uint8), t, 255).shape[1:] == wanted
