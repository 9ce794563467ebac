"""Factories are the only place of a method's parameters: ranges, names and types are checked there, in
words.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest

from raffed.config.source import described
from raffed.config.validation import declarations
from raffed.core.method import Method
from raffed.errors import UnknownNameError, UsageError
from raffed.methods import METHODS, build_method
from tests.tiny import over_methods

OUTSIDE: dict[str, dict[str, list[Any]]] = {
    "fedavg": {},
    "ditto": {"lam": [-0.1, math.nan], "epochs": [-1.0], "preset": ["map"]},
    "dittors": {
        "lam": [-0.1],
        "epochs": [-1.0],
        "alpha": [-0.1, 1.1],
        "mode": ["x"],
        "n_min": [0],
        "preset": ["author"],
    },
    "fedadagrad": {"server_lr": [0.0], "beta1": [-0.1, 1.1], "tau": [0.0], "v0": [-1.0], "weighting": ["n"]},
    "fedadam": {
        "server_lr": [0.0],
        "beta1": [-0.1, 1.1],
        "beta2": [-0.1, 1.1],
        "tau": [0.0],
        "v0": [-1.0],
        "weighting": ["n"],
    },
    "fedyogi": {
        "server_lr": [0.0],
        "beta1": [-0.1, 1.1],
        "beta2": [-0.1, 1.1],
        "tau": [0.0],
        "v0": [-1.0],
        "weighting": ["n"],
    },
    "fedavgm": {"beta": [-0.1, 1.1], "server_lr": [0.0, 101.0], "weighting": ["uniform"]},
    "fedaws": {"nu": [-0.1, 1.1], "server_steps": [-1], "server_lr": [-0.1, math.nan]},
    "fedgamma": {"rho": [-0.1, 101.0, math.nan], "server_lr": [0.0, 11.0]},
    "fedlesam": {"rho": [-0.1, 101.0, math.nan]},
    "fedlmd": {"beta": [-0.1, math.nan], "tau": [0.0, -1.0, math.nan], "teacher": ["test"]},
    "fedmmd": {"lam": [-0.1, math.nan]},
    "fedntd": {"beta": [-0.1, math.nan], "tau": [0.0, -1.0, math.nan], "teacher": ["none"]},
    "fedsam": {"rho": [-0.1, 101.0, math.nan], "stats": ["first"]},
    "fedper": {"private": ["body"]},
    "fedala": {
        "eta": [-0.1, math.nan],
        "share": [0.0, 1.1],
        "tensors": [-1],
        "first_epochs": [-1.0, 1e5],
        "first_model": ["none"],
    },
    "fedas": {
        "align_epochs": [-1.0],
        "align_lr": [-0.1, math.nan],
        "weights": ["samples"],
    },
    "pfedfda": {"beta": ["none"], "ridge": [0.0, -1.0, math.nan]},
    "fedbn": {"kept": ["head"]},
    "lgfedavg": {"shared": ["body"]},
    "fedproto": {"lam": [-0.1, math.nan], "preset": ["x"], "predict_by": ["x"]},
    "fedrep": {
        "head_epochs": [-1.0, math.nan],
        "body_epochs": [-1.0],
        "private": ["all"],
        "preset": ["original "],
    },
    "finetune": {"epochs": [-1.0, math.nan], "scope": ["body"]},
    "solo": {"epochs": [-1.0, math.nan]},
    "apfl": {"alpha": [-0.1, 1.1, math.nan]},
    "fedrod": {"gamma": [-0.1, 11.0, math.nan], "preset": ["author"]},
    "fedtgp": {
        "lam": [-0.1, math.nan],
        "server_epochs": [-1],
        "server_lr": [-0.1, math.nan],
        "batch_size": [0],
        "margin": [-0.1, math.nan],
    },
    "flda": {"preset": ["x"]},
    "pfedme": {
        "lam": [-0.1, math.nan],
        "outer_lr": [-0.1],
        "personal_lr": [-0.1],
        "inner_steps": [0],
        "beta": [-0.1, 11.0],
        "preset": ["x"],
    },
    "perfedavg": {
        "inner_lr": [-0.1, math.nan],
        "outer_lr": [-0.1],
        "mode": ["fo2"],
        "delta": [0.0, -1.0],
        "adapt_steps": [-1],
        "adapt_epochs": [-1.0],
        "preset": ["x"],
    },
    "feddf": {
        "server_steps": [-1],
        "server_lr": [0.0, math.nan],
        "batch_size": [0],
        "tau": [0.0],
        "public": [0],
        "preset": ["x"],
    },
    "feddbe": {"kappa": [-0.1, math.nan], "mu": [0.0, 1.1]},
    "feddisco": {"a": [-0.1, math.nan], "b": [-0.1, math.nan], "measure": ["l1"]},
    "fedexp": {
        "epsilon": [-0.1, math.nan],
        "score": ["mean"],
        "epsilon_scale": ["official"],
        "weighting": ["n"],
    },
    "fedic": {
        "copy_steps": [-1],
        "gate_steps": [-1],
        "distil_steps": [-1],
        "server_lr": [0.0, math.nan],
        "rho": [-0.1, 1.1],
        "labelled": [0],
        "public": [0],
    },
    "gldp": {
        "lam": [-0.1, 1.1],
        "beta": [-0.1, 1.1],
        "body_epochs": [-1.0],
        "head_epochs": [-1.0],
        "lp": ["kl"],
        "gp": ["mean"],
        "temperature": [0.0, -1.0],
        "order": ["body"],
        "inference": ["head"],
        "candidates": ["own"],
    },
    "mpfedcon": {
        "mu": [-0.1, math.nan],
        "tau": [0.0],
        "head_epochs": [-1.0],
        "encoder_epochs": [-1.0],
        "centre_weight": ["size"],
        "negative": ["head"],
    },
    "noisygrad": {"kind": ["uniform"], "size": [-0.1, math.nan], "meaning": ["std"]},
    "ccvr": {"virtual": [0], "epochs": [-1], "retrain_lr": [-0.1, math.nan], "covariance": ["tied"]},
    "creff": {
        "features": [0],
        "match_steps": [-1],
        "match_lr": [-0.1],
        "retrain_epochs": [-1],
        "retrain_lr": [-0.1, math.nan],
    },
    "fedbabu": {"epochs": [-1.0, math.nan], "scope": ["top"]},
    "fedetf": {"scale": [0.0, math.nan], "missing": ["inf"], "epochs": [-1.0]},
    "fedgela": {"temperature": [0.0, -1.0, math.nan]},
    "fedloge": {"frame": ["orthogonal"], "length": [0.0, math.nan]},
    "fednh": {"rho": [-0.1, 1.1, math.nan], "scale": [0.0], "unit": ["server"]},
    "feddc": {"alpha": [-0.1, 1e4], "beta": ["k"], "score": ["mean"], "prototypes": ["x"]},
    "feddyn": {
        "alpha": [0.0, -1.0, math.nan],
        "score": ["mean"],
        "prototypes": ["fedprox"],
        "preset": ["official"],
    },
    "fednova": {"gmf": [-0.1, 1.1], "mu": [-1.0, math.nan], "prototypes": ["nova"], "preset": ["official"]},
    "fedproc": {},
    "fedprox": {"mu": [-0.01, 1e7, math.nan], "prototypes": ["fedpro"], "preset": ["x"]},
    "moon": {"mu": [-0.01, 1e7, math.nan], "tau": [0.0, -1.0, 101.0], "prototypes": ["x"]},
    "fedlc": {"tau": [-0.1, 1001.0, math.nan], "denominator": ["other"], "missing": ["eps"]},
    "feddecorr": {"beta": [-0.1, 1e7, math.nan], "norm": ["offical"]},
    "feduv": {"lam": [-0.1, math.nan], "mu": [-0.1, 1e7]},
    "fedvls": {
        "lam": [-0.1, 1e7, math.nan],
        "suppress": [-0.1],
        "suppress_form": ["x"],
        "teacher": ["none"],
    },
    "priorce": {"tau": [-0.1, 11.0, math.nan], "missing": ["inf"]},
    "scaffold": {"server_lr": [0.0, -1.0, 11.0, math.nan], "preset": ["author"], "controls_by": ["steps"]},
    "fedrs": {"alpha": [-0.1, 1.1, math.nan], "mode": ["binray", ""], "n_min": [0, -3]},
    "fedphp": {
        "lam": [-0.1, 1.1],
        "mu": [-0.1, 1.1],
        "transfer": ["KD", "mse"],
        "kd_student_tau": [0.0, -1.0, 101.0],
    },
    "map": {
        "alpha": [-0.1, 1.1],
        "lam": [-0.1, 1.1],
        "mu": [-0.1, 1.1],
        "transfer": ["mdm"],
        "mode": ["count"],
        "n_min": [0],
        "kd_student_tau": [0.0],
        "share": [-0.1, 11.0],
        "lr_scale": [-0.1, 11.0],
        "least": [-1],
    },
    "scars": {"alpha": [2.0], "server_lr": [0.0], "mode": ["x"], "n_min": [0], "preset": ["x"]},
    "scamap": {
        "alpha": [-0.1],
        "lam": [1.1],
        "mu": [1.1],
        "transfer": ["x"],
        "server_lr": [0.0],
        "mode": ["x"],
        "n_min": [0],
        "kd_student_tau": [0.0],
        "share": [-1.0],
        "lr_scale": [-1.0],
        "least": [-1],
        "preset": ["x"],
    },
    "fedmr": {
        "mu1": [-1.0, math.nan],
        "mu2": [-1.0],
        "share": [-0.1, 1.1],
        "intra_norm": ["offical"],
        "inter_negatives": ["some"],
        "inter_mode": ["push"],
        "inter_space": ["L2"],
        "prototype_from": ["server"],
        "lite": [-1],
        "min_class_count": [1, 0],
    },
}
CASES = [
    (name, key, value) for name, keys in OUTSIDE.items() for key, values in keys.items() for value in values
]


@pytest.mark.parametrize(("name", "key", "value"), CASES)
def test_a_value_out_of_range_raises_with_its_name_and_itself(name: str, key: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        build_method(name, {key: value})
    assert key in str(caught.value)
    assert str(value) in str(caught.value)


def test_every_parameter_that_can_be_out_of_range_was_tried() -> None:
    """Switches (bool) cannot; all others of every method have a case above."""
    assert len(CASES) >= 55
    assert set(OUTSIDE) == set(METHODS)
    for name, tried in OUTSIDE.items():
        known = inspect.signature(METHODS[name].load()).parameters
        assert set(tried) == {key for key, p in known.items() if not isinstance(p.default, bool)}


@over_methods
def test_defaults_make_a_method_with_the_registered_title(name: str) -> None:
    made = build_method(name)
    assert isinstance(made, Method)
    assert made.name == METHODS[name].title


@over_methods
def test_every_argument_has_a_default_a_meaning_and_if_it_is_a_number_a_range(name: str) -> None:
    factory = METHODS[name].load()
    assert factory.__doc__
    for one in declarations(factory).values():
        assert one.default, one
        assert one.doc.endswith("."), one
        assert (one.range is not None) == (one.kind in ("int", "float")), one
        assert bool(one.choices) == (one.kind == "str"), one


@over_methods
def test_a_listing_without_torch_reads_the_declarations_that_the_check_reads(name: str) -> None:
    info = METHODS[name]
    read = described(f"raffed.methods.{info.module}", info.factory).arguments
    assert read == list(declarations(info.load()).values())


@over_methods
def test_both_ends_of_a_declared_range_are_taken_and_what_lies_beyond_is_not(name: str) -> None:
    """An end that stands outside the range, as 0 in (0, 1], is refused."""
    for one in declarations(METHODS[name].load()).values():
        if one.range is None:
            continue
        kind: Any = int if one.kind == "int" else float
        for end, closed in ((one.range.low, not one.range.open_low), (one.range.high, True)):
            if closed and end != math.inf:
                one.check(kind(end))
        for beyond in (
            kind(one.range.low - 1),
            *([] if one.range.high == math.inf else [one.range.high + 1]),
        ):
            with pytest.raises(UsageError, match=one.name):
                build_method(name, {one.name: beyond})


@over_methods
def test_a_factory_that_is_called_directly_checks_as_build_method_does(name: str) -> None:
    for key, values in OUTSIDE[name].items():
        with pytest.raises(UsageError, match=key):
            METHODS[name].load()(**{key: values[0]})


@over_methods
def test_an_unknown_keyword_lists_the_nearest_or_all(name: str) -> None:
    known = list(inspect.signature(METHODS[name].load()).parameters)
    with pytest.raises(UnknownNameError, match="unknown argument of"):
        build_method(name, {"zzzzzz": 1.0})
    if known:
        with pytest.raises(UnknownNameError, match=rf"nearest: .*\b{known[0]}\b"):
            build_method(name, {f"{known[0]}x": 1.0})


TYPOS = [("fedproxx", "fedprox"), ("scafold", "scaffold"), ("FedAvg", "fedavg"), ("mpa", "map")]


@pytest.mark.parametrize(("got", "nearest"), TYPOS)
def test_an_unknown_method_lists_the_nearest(got: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"unknown method '{got}'; nearest: .*{nearest}"):
        build_method(got)


@over_methods
def test_a_value_of_the_wrong_type_is_refused_by_name_and_an_int_is_a_float(name: str) -> None:
    for key, parameter in inspect.signature(METHODS[name].load()).parameters.items():
        wrong: Any = 3 if isinstance(parameter.default, str) else "text"
        with pytest.raises(UsageError, match=rf"{name}: {key} = "):
            build_method(name, {key: wrong})
        if type(parameter.default) is float:
            assert build_method(name, {key: 1}) is not None
            with pytest.raises(UsageError, match=rf"{name}: {key} = True"):
                build_method(name, {key: True})


def test_the_range_itself_is_in_the_message() -> None:
    with pytest.raises(UsageError, match=r"alpha = 1.5 is outside \[0.0, 1.0\]"):
        build_method("fedrs", {"alpha": 1.5})
    with pytest.raises(UsageError, match=r"server_lr = 0.0 is outside \(0.0, 10.0\]"):
        build_method("scaffold", {"server_lr": 0.0})
