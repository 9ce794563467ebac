"""A preparation by its numbers: what the user gives replaces the numbers of the style."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raffed import Data, Federation, RunConfig
from raffed.config.validation import Json
from raffed.data.preparation import AS_IT_IS, Transform, with_numbers
from raffed.data.transforms import prepare_inputs, transform_for
from raffed.errors import UsageError
from raffed.runtime.setup import prepare_run


def configured(args: dict[str, Json], **data: str) -> RunConfig:
    section = replace(Data(transform_args=args), **data)  # type: ignore[arg-type]
    return RunConfig(data=section, federation=Federation(rounds=1))


def test_pixels_are_normalised_by_the_mean_and_the_deviation_that_were_given() -> None:
    setup = prepare_run(configured({"mean": [0.1307], "std": [0.3081]}))
    raw = setup.dataset.x[:5]
    found = prepare_inputs(raw, setup.transform, setup.dataset.max_value).numpy()
    np.testing.assert_allclose(found, (raw / 16 - 0.1307) / 0.3081, rtol=0, atol=1e-6)


def test_cifar10_can_be_augmented_without_being_normalised() -> None:
    found = with_numbers(transform_for("cifar10", "fedmr"), {"mean": [0, 0, 0], "std": [1, 1, 1]})
    wanted = Transform(mean=(0.0,) * 3, std=(1.0,) * 3, crop_padding=4, padding_mode="reflect", flip=True)
    assert found == wanted


def test_a_single_number_stands_for_one_channel() -> None:
    assert with_numbers(AS_IT_IS, {"mean": 0.5, "std": 0.25}) == Transform(mean=(0.5,), std=(0.25,))


def test_without_numbers_the_transform_is_that_of_the_style() -> None:
    own = transform_for("mnist", "map")
    assert with_numbers(own, {}) is own


def test_numbers_count_in_the_identity_and_none_leave_it_as_it_is() -> None:
    usual = RunConfig(federation=Federation(rounds=1)).identity()
    assert configured({}).identity() == usual
    assert configured({"std": [0.3]}).identity() != usual


def test_the_shape_after_resizing_is_that_of_the_numbers() -> None:
    assert prepare_run(configured({"size": 16})).data.input_shape == (1, 16, 16)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"means": [0.1]}, "unknown name in data.transform_args 'means'; nearest: mean"),
        ({"flamby": True}, "unknown name in data.transform_args 'flamby'"),
        ({"mean": ["a"]}, r"mean = \['a'\] must have one number for each channel"),
        ({"mean": []}, "must have one number for each channel"),
        ({"std": [float("nan")]}, "must have one number for each channel"),
        ({"std": [0.0]}, "each channel needs a mean and a std > 0"),
        ({"mean": [0.1, 0.2]}, "each channel needs a mean and a std > 0"),
        ({"mean": [0.1, 0.2], "std": [1, 1]}, "images have 1 channels, but the transform is for 2"),
        ({"flip": 3}, "flip = 3 is an int, but must be a bool"),
        ({"crop_padding": -1}, "crop_padding = -1"),
        ({"padding_mode": "mirror"}, "unknown padding_mode 'mirror'"),
    ],
)
def test_a_wrong_number_is_refused_before_the_data_are_read(args: dict[str, Json], said: str) -> None:
    def read() -> None:
        raise AssertionError("the data would be read now")

    with pytest.raises(UsageError, match=said):
        prepare_run(configured(args), read)
