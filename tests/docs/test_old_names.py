"""The names of version 0.1.0 (commit c5aec24) that commands and scripts use are all there today."""

from __future__ import annotations

import inspect

import pytest
import raffed.analysis

import raffed
from raffed.data.catalogue import DATASETS
from raffed.methods import METHODS
from raffed.models import MODELS

ARGUMENTS = {  # of every method
    "apfl": "alpha adaptive",
    "creff": "features match_steps match_lr retrain_epochs retrain_lr",
    "ditto": "lam epochs preset",
    "dittors": "lam epochs alpha mode n_min preset",
    "fedadagrad": "server_lr beta1 tau v0 weighting",
    "fedadam": "server_lr beta1 beta2 tau v0 weighting",
    "fedavg": "",
    "fedavgm": "beta server_lr weighting",
    "fedaws": "nu server_steps server_lr",
    "feddc": "alpha beta scaled score prototypes",
    "feddf": "server_steps server_lr batch_size tau public preset",
    "feddyn": "alpha scaled score prototypes preset",
    "fedic": "copy_steps gate_steps distil_steps server_lr rho labelled public",
    "fedmmd": "lam",
    "fedmr": "mu1 mu2 intra_norm inter_negatives inter_mode inter_space prototype_from share lite "
    "min_class_count",
    "fednova": "prototypes gmf mu preset",
    "fedper": "private",
    "fedphp": "lam mu transfer kd_student_tau kd_tau_sq",
    "fedproc": "",
    "fedproto": "lam preset",
    "fedprox": "mu prototypes preset",
    "fedrep": "head_epochs body_epochs private preset",
    "fedrod": "gamma preset",
    "fedrs": "alpha mode n_min",
    "fedyogi": "server_lr beta1 beta2 tau v0 weighting",
    "finetune": "epochs scope every_round",
    "flda": "preset",
    "gldp": "lam beta body_epochs head_epochs lp gp temperature order inference candidates proto_snapshot",
    "map": "alpha lam mu transfer mode n_min kd_student_tau kd_tau_sq share lr_scale least",
    "moon": "mu tau prototypes",
    "mpfedcon": "mu tau head_epochs encoder_epochs centre_weight negative",
    "noisygrad": "kind size meaning",
    "perfedavg": "inner_lr outer_lr mode delta adapt_steps adapt_epochs preset",
    "pfedme": "lam outer_lr personal_lr inner_steps beta preset",
    "scaffold": "server_lr preset",
    "scamap": "alpha lam mu transfer server_lr mode n_min kd_student_tau kd_tau_sq share lr_scale "
    "least preset",
    "scars": "alpha server_lr mode n_min preset",
    "solo": "epochs",
}
NETWORKS = {  # the arguments of every network
    "cnn5": "channels head_bias hidden projection",
    "efficientnet_b0": "dropout head_bias projection stochastic_depth",
    "femnist_cnn": "head_bias",
    "lenet": "head_bias projection",
    "lenet_2d": "head_bias relu",
    "lenet_authors": "head_bias",
    "lenet_dlg": "fc_layers head_bias",
    "mlp": "head_bias hidden",
    "mlp5": "head_bias hidden projection",
    "mlpnet": "head_bias hidden",
    "mlpnet_authors": "head_bias",
    "resnet18": "head_bias projection",
    "resnet20": "head_bias",
    "resnet56": "head_bias",
    "resnet8": "head_bias stem_stride",
    "simplecnn": "head_bias projection",
    "tfcnn": "head_bias",
    "vgg11": "head_bias",
    "vgg11_bn": "head_bias",
    "vgg16_bn": "head_bias",
    "vgg8": "head_bias",
    "vgg8_bn": "head_bias",
    "wrn28": "dropout head_bias projection widen",
}
DATA_SETS = (
    "cifar10 cifar100 cinic10 digits fashion-mnist femnist femnist-letters isic2019 mnist svhn tiny-imagenet"
)
PUBLIC = {
    "raffed": "Data Faults Federation Local Model Numerics Privacy RunConfig RunResult Runtime __version__ "
    "resume run",
    "raffed.analysis": "NoRunsError Runs class_heat_map curves load_runs summary to_html to_latex "
    "to_markdown to_text write_report",
}


@pytest.mark.parametrize("method", ARGUMENTS)
def test_a_method_takes_all_arguments_that_it_took(method: str) -> None:
    known = inspect.signature(METHODS[method].load()).parameters
    assert [name for name in ARGUMENTS[method].split() if name not in known] == []


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_takes_all_arguments_that_it_took(network: str) -> None:
    known = inspect.signature(MODELS[network].load()).parameters
    assert [name for name in NETWORKS[network].split() if name not in known] == []


def test_all_data_sets_of_then_are_there() -> None:
    assert [name for name in DATA_SETS.split() if name not in DATASETS] == []


@pytest.mark.parametrize("package", PUBLIC)
def test_all_public_names_of_then_can_be_imported(package: str) -> None:
    module = {"raffed": raffed, "raffed.analysis": raffed.analysis}[package]
    names = PUBLIC[package].split()
    assert [name for name in names if name not in module.__all__] == []
    assert [name for name in names if not hasattr(module, name)] == []
