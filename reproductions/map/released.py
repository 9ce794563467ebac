"""The runs that MAP's released code makes for Tables I and II.

The code has its own variants of the methods, and three settings for each, of which the best is printed
(docs/papers/map.md §2.4, §3.6, §4, §5; docs/papers/baselines.md and baselines-personal.md). A method without
any settings is run once. All methods warm up for five rounds, clip gradients at norm 100, and weight clients
uniformly, except FedRS, FedPHP and MAP. For Fashion-MNIST the code uses 28x28 images, batches of 32, and an
MLPNet and a LeNet of its own (docs/papers/map.md §E1 to §E3), while the paper's text says 32x32 and 64 and
describes other networks.

Some differences remain. In the released code, private models exist, untrained, before a client's first
participation, and teach it. The docstrings of the presets name further ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from raffed import Model, RunConfig
from raffed.tables.catalogue import Argument

WARM_UP = 5
SMALL_BATCH = 32  # batch size on Fashion-MNIST
NETS = {"mlpnet": Model("mlpnet_authors"), "lenet": Model("lenet_authors")}  # other networks are the paper's
BY_SAMPLES = ("fedrs", "fedphp", "map")
UNCLIPPED = ("pfedme", "perfedavg")  # local solvers, which that code does not clip
SETTINGS: dict[str, tuple[Mapping[str, Argument], ...]] = {
    "fedprox": ({"mu": 1e-4}, {"mu": 1e-3}, {"mu": 1e-2}),
    "fedmmd": ({"lam": 1e-3}, {"lam": 1e-2}, {"lam": 1e-1}),
    "scaffold": ({"server_lr": 0.5}, {"server_lr": 0.75}, {"server_lr": 0.9}),
    "feddf": (
        {"server_lr": 1e-2, "server_steps": 200},
        {"server_lr": 1e-3, "server_steps": 300},
        {"server_lr": 1e-4, "server_steps": 500},
    ),
    "fednova": ({"gmf": 0.9, "mu": 1e-4}, {"gmf": 0.5, "mu": 1e-3}, {"gmf": 0.3, "mu": 1e-2}),
    "fedavgm": ({"server_lr": 1.0}, {"server_lr": 0.1}, {"server_lr": 0.05}),
    "moon": ({"mu": 1e-3}, {"mu": 1e-2}, {"mu": 1e-1}),
    "fedaws": (
        {"nu": 0.9, "server_steps": 20, "server_lr": 1.0},
        {"nu": 0.8, "server_steps": 30, "server_lr": 0.1},
        {"nu": 0.5, "server_steps": 50, "server_lr": 0.01},
    ),
    "feddyn": ({"alpha": 1e-3}, {"alpha": 1e-2}, {"alpha": 1e-1}),
    "pfedme": (
        {"lam": 0.1, "outer_lr": 0.9, "inner_steps": 5},
        {"lam": 0.01, "outer_lr": 0.75, "inner_steps": 10},
        {"lam": 0.001, "outer_lr": 0.5, "inner_steps": 15},
    ),
    "perfedavg": ({"outer_lr": 0.1}, {"outer_lr": 0.05}, {"outer_lr": 0.01}),
    "fedproto": ({"lam": 0.1}, {"lam": 0.01}, {"lam": 0.001}),
    "ditto": ({"lam": 0.1}, {"lam": 0.01}, {"lam": 0.001}),
    "fedrod": ({"gamma": 1.0}, {"gamma": 0.5}, {"gamma": 0.25}),
    "fedphp": (
        {"transfer": "kd", "lam": 0.1},
        {"transfer": "mmd", "lam": 0.1},
        {"transfer": "mmd", "lam": 0.01},
    ),
    "fedrs": ({"alpha": 0.9}, {"alpha": 0.5}, {"alpha": 0.1}),
    "scars": (
        {"alpha": 0.1, "server_lr": 0.5},
        {"alpha": 0.9, "server_lr": 0.75},
        {"alpha": 0.5, "server_lr": 0.9},
    ),
    "dittors": ({"alpha": 0.1, "lam": 0.1}, {"alpha": 0.9, "lam": 0.01}, {"alpha": 0.5, "lam": 0.001}),
    "map": (
        {"transfer": "kd", "lam": 0.1, "alpha": 0.5},
        {"transfer": "kd", "lam": 0.01, "alpha": 0.9},
        {"transfer": "mmd", "lam": 0.01, "alpha": 0.5},
    ),
    "scamap": (
        {"transfer": "kd", "lam": 0.1, "alpha": 0.5, "server_lr": 0.5},
        {"transfer": "kd", "lam": 0.01, "alpha": 0.9, "server_lr": 0.9},
        {"transfer": "mmd", "lam": 0.01, "alpha": 0.5, "server_lr": 0.5},
    ),
}
PRESETS = (
    "fedprox",
    "scaffold",
    "feddf",
    "fednova",
    "feddyn",
    "flda",
    "pfedme",
    "perfedavg",
    "fedproto",
    "fedrep",
    "ditto",
    "fedrod",
    "scars",
    "dittors",
    "scamap",
)
# Docs/papers/map.md §1.4; methods with a preset take it from there
MODES = {"fedrs": "counts", "map": "uniform_bug"}


def released(config: RunConfig) -> Mapping[str, RunConfig]:
    """Return the runs of the released code behind a cell of Tables I and II: the setting's name → its run."""
    method, rate = config.method, config.local.lr
    always: dict[str, Argument] = {"preset": "authors"} if method in PRESETS else {}
    always |= {"mode": MODES[method]} if method in MODES else {}
    always |= {"personal_lr": rate} if method == "pfedme" else {}
    clip = None if method in UNCLIPPED else 100.0
    batch = SMALL_BATCH if config.data.dataset == "fashion-mnist" else config.local.batch_size
    local = replace(config.local, warmup_rounds=WARM_UP, clip_norm=clip, batch_size=batch)
    weighting: Literal["samples", "clients"] = "samples" if method in BY_SAMPLES else "clients"
    data, model = replace(config.data, transform="map-authors"), NETS.get(config.model.name, config.model)
    run = replace(
        config,
        data=data,
        model=model,
        local=local,
        federation=replace(config.federation, weighting=weighting),
    )
    settings = SETTINGS.get(method, ({},))
    return {_said(setting): replace(run, args={**config.args, **always, **setting}) for setting in settings}


def _said(settings: Mapping[str, Argument]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items()) or "defaults"
