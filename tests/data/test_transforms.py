"""Transforms against torchvision, image by image, by given numbers, and of inputs that are no images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as vision
from torch import Tensor

from raffed import Data, Federation, RunConfig
from raffed.config.validation import Json
from raffed.data.catalogue import DATASETS
from raffed.data.preparation import AS_IT_IS, STYLES, TRANSFORMS, Transform
from raffed.data.transforms import augment, prepare_images, prepare_inputs, transform_for
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
    ],
)
def test_a_wrong_number_is_refused_before_the_data_are_read(args: dict[str, Json], said: str) -> None:
    def read() -> None:
        raise AssertionError("the data would be read now")

    with pytest.raises(UsageError, match=said):
        prepare_run(configured(args), read)


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


def test_zero_padding_is_black_and_not_grey() -> None:
    t = Transform(**COLOUR, crop_padding=4)
    white = prepare_images(np.full((200, 3, 32, 32), 255, np.uint8), t, 255)
    black = prepare_images(np.zeros((1, 3, 1, 1), np.uint8), t, 255).flatten()
    assert augment(white, t, generator()).amin(dim=(0, 2, 3)).tolist() == black.tolist()
