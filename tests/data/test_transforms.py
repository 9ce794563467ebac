"""Transforms against torchvision, image by image: same numbers, drawn for the whole batch at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from hypothesis import given, settings
from hypothesis import strategies as st

from raffed.data.catalogue import DATASETS
from raffed.data.preparation import STYLES, Transform
from raffed.data.transforms import augment, prepare_images, transform_for
from raffed.errors import UsageError

COLOUR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}


def images(n: int, channels: int = 3, side: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, channels, side, side), dtype=np.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_prepare_is_to_tensor_and_normalise() -> None:
    raw, t = images(3), Transform(**COLOUR)
    expected = [vision.normalize(vision.to_tensor(x.transpose(1, 2, 0)), t.mean, t.std) for x in raw]
    torch.testing.assert_close(prepare_images(raw, t, 255), torch.stack(expected), rtol=0, atol=0)


def test_the_largest_pixel_becomes_one_and_zero_becomes_minus_one_in_map_style() -> None:
    raw = np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1, 1).repeat(28, 2).repeat(28, 3)
    got = prepare_images(raw, transform_for("famnist", "map"), 255)
    assert got.shape == (2, 1, 32, 32)
    assert got[0].unique().tolist() == [-1.0]
    assert got[1].unique().tolist() == [1.0]


def test_digits_are_scaled_by_16() -> None:
    raw = np.full((1, 1, 8, 8), 8, dtype=np.uint8)
    assert prepare_images(raw, transform_for("digits", "map"), 16).unique().tolist() == [0.5]


def test_resizing_2_to_4_pixels_interpolates_a_quarter_of_the_way() -> None:
    """align_corners=False: output pixel centres lie at -1/4, 1/4, 3/4, 5/4 of the input's, clamped at the
    ends.
    """
    raw = np.array([0, 4], dtype=np.uint8).reshape(1, 1, 1, 2).repeat(2, 2)
    got = prepare_images(raw, Transform(size=4), 4)
    assert got[0, 0].tolist() == [[0.0, 0.25, 0.75, 1.0]] * 4


@pytest.mark.parametrize("n", [0, 1, 3])
def test_prepare_copies_read_only_images_and_takes_any_number_of_them(n: int) -> None:
    raw = images(n, channels=1, side=28)
    raw.setflags(write=False)
    before = raw.copy()
    got = prepare_images(raw, transform_for("mnist", "map"), 255)
    assert got.shape == (n, 1, 32, 32)
    assert got.dtype == torch.float32
    np.testing.assert_array_equal(raw, before)


@pytest.mark.parametrize(
    "raw", [np.zeros((2, 1, 8, 8), np.uint8), np.zeros((2, 3, 8, 8), int), np.zeros((3, 8, 8), np.uint8)]
)
def test_prepare_refuses_other_shapes_and_types(raw: np.ndarray) -> None:
    with pytest.raises(UsageError, match=r"must be uint8 or floats \(n, 3, H, W\)"):
        prepare_images(raw, Transform(**COLOUR), 255)


def test_augment_without_anything_to_do_returns_x_itself_and_leaves_the_generator() -> None:
    x, random = torch.zeros(4, 1, 8, 8), generator()
    state = random.get_state()
    assert augment(x, Transform(), random) is x
    assert torch.equal(random.get_state(), state)


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
def test_every_augmented_image_is_one_of_torchvisions_crops_and_all_of_them_occur(
    mode: str, flip: bool
) -> None:
    t = Transform(**COLOUR, crop_padding=2, padding_mode=mode, flip=flip)
    raw = images(1, side=8)
    possible = every_crop(raw[0], t)
    many = augment(prepare_images(raw, t, 255).expand(2000, -1, -1, -1), t, generator())
    equal = (many[:, None] == possible[None]).flatten(2).all(dim=2)
    assert equal.any(dim=1).all(), "nothing but crops"
    assert equal.any(dim=0).all(), f"all {len(possible)} of them"


def test_images_of_a_batch_are_cropped_and_flipped_independently() -> None:
    t = transform_for("cifar10", "map")
    got = augment(prepare_images(images(1), t, 255).expand(64, -1, -1, -1), t, generator())
    assert len(got.flatten(1).unique(dim=0)) > 40


def test_half_of_the_images_are_flipped() -> None:
    t = Transform(flip=True)
    x = torch.arange(8.0).expand(4000, 1, 8, 8)
    flipped = int((augment(x, t, generator())[:, 0, 0, 0] == 7).sum())
    assert abs(flipped - 2000) < 4 * 31.6, "four standard deviations of Binomial(4000, 1/2)"


def test_zero_padding_is_black_and_not_grey() -> None:
    t = Transform(**COLOUR, crop_padding=4)
    white = prepare_images(np.full((200, 3, 32, 32), 255, np.uint8), t, 255)
    black = prepare_images(np.zeros((1, 3, 1, 1), np.uint8), t, 255)
    got = augment(white, t, generator())
    assert torch.equal(torch.minimum(got.amin(dim=(0, 2, 3)), black.flatten()), black.flatten())
    assert got.amin(dim=(0, 2, 3)).tolist() == black.flatten().tolist()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), style=st.sampled_from(["map", "fedmr"]))
def test_the_same_generator_gives_the_same_bits_and_x_is_left_alone(seed: int, style: str) -> None:
    t = transform_for("cifar100", style)
    x = prepare_images(images(5, seed=seed % 1000), t, 255)
    before = x.clone()
    assert torch.equal(augment(x, t, generator(seed)), augment(x, t, generator(seed)))
    assert torch.equal(x, before)


def test_augmenting_takes_one_draw_of_the_batch_from_the_generator() -> None:
    random = generator()
    t = transform_for("cifar100", "fedmr")
    augment(prepare_images(images(6), t, 255), t, random)
    reference = generator()
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


def test_rotation_by_zero_degrees_of_an_odd_shape_keeps_every_pixel() -> None:
    t = Transform(rotation_degrees=1e-9)
    x = torch.rand(3, 1, 7, 12)
    assert torch.equal(augment(x, t, generator()), x)


def test_every_data_set_has_every_style_with_the_right_number_of_channels() -> None:
    assert len(DATASETS) == 11
    for name, info in DATASETS.items():
        assert set(info.transforms) == set(STYLES), name
        assert {len(t.mean) for t in info.transforms.values()} == {info.shape[0]}, name


def test_plain_neither_augments_nor_moves_a_pixel() -> None:
    for name, info in DATASETS.items():
        t = transform_for(name, "plain")
        assert not t.augments
        assert t.prepared_shape(info.shape) == info.shape
        raw = np.full((1, *info.shape), 51, np.uint8)
        assert prepare_images(raw, t, 255).unique().tolist() == pytest.approx([0.2])


def test_the_papers_constants() -> None:
    assert transform_for("famnist", "map").prepared_shape((1, 28, 28)) == (1, 32, 32)
    assert transform_for("famnist", "fedmr") == Transform()
    assert (
        transform_for("cifar10", "map")
        == transform_for("cifar100", "map")
        == transform_for("cinic10", "map")
        == Transform(**COLOUR, crop_padding=4, flip=True)
    )
    assert transform_for("cifar10", "fedmr").padding_mode == "reflect"
    assert transform_for("cifar100", "fedmr").rotation_degrees == 15
    assert not any(
        transform_for(name, style).flip for name in ("femnist", "mnist", "svhn", "digits") for style in STYLES
    )


FEDMR = {  # docs/papers/fedmr.md §E1: mean, std, crop padding, its mode, flip, rotation in degrees, centre
    "fashion-mnist": ((0.0,), (1.0,), 0, "zeros", False, 0.0, None),
    "svhn": (
        (0.4376821, 0.4437697, 0.47280442),
        (0.19803012, 0.20101562, 0.19703614),
        0,
        "zeros",
        False,
        0.0,
        None,
    ),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615), 4, "reflect", True, 0.0, None),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), 4, "zeros", True, 15.0, None),
    "isic2019": (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
        0,
        "zeros",
        False,
        0.0,
        200,
    ),  # ImageNet's; see `FlambyAugment`
}


@pytest.mark.parametrize("name", FEDMR)
def test_fedmrs_constants_are_the_sheets_by_value(name: str) -> None:
    t = transform_for(name, "fedmr")
    assert (t.mean, t.std, t.crop_padding, t.padding_mode, t.flip, t.rotation_degrees, t.centre) == FEDMR[
        name
    ]
    assert t.size is None
    assert (t.flamby is None) == (name != "isic2019")
