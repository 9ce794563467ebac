"""AutoAugment: every change gives the pixels of PIL or scipy, and the pairs are drawn as published."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage

from raffed.data.augmentation import CHANGES, DRAWS, PAIRS, RANGES, amount, apply
from raffed.data.preparation import Transform, with_numbers
from raffed.data.transforms import augment_by, augment_draws, transform_for
from raffed.errors import UsageError

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


@pytest.mark.parametrize("name", list(RANGES))
def test_a_change_gives_the_pixels_of_pil_or_of_scipy(name: str) -> None:
    least, most = RANGES[name]
    before = images()
    batch = torch.from_numpy(before).permute(0, 3, 1, 2).float()
    for share in (0.03, 0.5, 0.77):
        value = least + share * (most - least)
        found = CHANGES[name](batch, torch.full((len(batch),), value)).permute(0, 2, 3, 1).numpy()
        wanted = np.stack([REFERENCES[name](value)(one) for one in before])
        np.testing.assert_array_equal(found, wanted)


def test_a_range_has_ten_parts_from_its_weakest_amount_to_its_strongest() -> None:
    parts, u = torch.tensor([0, 4, 9]), torch.tensor([0.0, 0.5, 1.0])
    torch.testing.assert_close(amount("rotate", parts, u), torch.tensor([-30.0, -3.0, 30.0]))


def test_there_are_25_pairs_and_each_is_drawn_equally_often() -> None:
    """The 15th pair, solarize with 0.5 and invert with 0, is drawn from 14/25 on and does nothing at 0.5."""
    assert len(PAIRS) == 25
    x = torch.rand(1, 3, SIDE, SIDE)
    none, one = torch.zeros(3, 1, 1), torch.ones(3, 1, 1)

    def changed(pair: float, share: float) -> bool:
        draws = torch.tensor([[pair, share, 0.5, share, 0.5]], dtype=torch.float64)
        return not torch.equal(apply(x, none, one, draws), x)

    assert changed(14.01 / 25, 0.49)
    assert not changed(14.01 / 25, 0.5)
    assert changed(15.01 / 25, 0.59)  # the 16th: equalize with 0.2, autocontrast with 0.6
    assert not changed(15.01 / 25, 0.6)


def test_both_changes_of_a_pair_follow_each_other_in_pixels_and_are_normalised_again() -> None:
    """The 24th pair: equalize, then invert."""
    before = images()[:1]
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(-1, 1, 1), torch.tensor([0.2, 0.3, 0.4]).view(-1, 1, 1)
    x = (torch.from_numpy(before).permute(0, 3, 1, 2).float() / 255 - mean) / std
    found = apply(x, mean, std, torch.tensor([[23.5 / 25, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    wanted = torch.from_numpy(255 - REFERENCES["equalize"](0)(before[0])).permute(2, 0, 1) / 255
    torch.testing.assert_close(found[0] * std + mean, wanted, rtol=0, atol=1e-6)


def test_images_that_draw_no_change_keep_their_bits_and_grey_ones_have_one_channel() -> None:
    x = torch.randn(8, 1, SIDE, SIDE)
    one = torch.ones(1, 1, 1)
    draws = torch.rand(8, DRAWS, dtype=torch.float64)
    draws[4:, [1, 3]] = 0.99
    found = apply(x, 0.3 * one, 0.2 * one, draws)
    assert found.shape == x.shape
    assert torch.equal(found[4:], x[4:])
    assert torch.isfinite(found).all()


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


def test_images_of_two_channels_are_refused() -> None:
    with pytest.raises(
        UsageError, match="autoaugment is for images of 1 or 3 channels, and the transform is for 2"
    ):
        Transform(mean=(0.5, 0.5), std=(1.0, 1.0), autoaugment=True)
