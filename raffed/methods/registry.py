"""The table of raffed's own methods: name → factory. A new one is a file beside this one and a line here.

Factories are imported when asked for, so that listing them needs neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raffed.config.source import Described, described
from raffed.config.validation import Value
from raffed.methods.own import Space

if TYPE_CHECKING:
    from raffed.core.method import Factory, Method


@dataclass(frozen=True)
class MethodInfo:
    """Where a factory lives and one line about it.

    `revision` counts the meanings that the method's arguments have had. It is raised by a change after which
    the same arguments give another result, so that a run of the earlier revision is not continued.
    """

    title: str
    source: str
    module: str
    factory: str
    idea: str
    revision: int = 1

    def load(self) -> Factory:
        found: Factory = getattr(importlib.import_module(f"raffed.methods.{self.module}"), self.factory)
        return found

    @property
    def package(self) -> str:
        """The installed distribution that holds it."""
        return "raffed"

    @property
    def space(self) -> Space | None:
        """None: what to search for raffed's own methods is in raffed/tune_spaces."""
        return None

    def check_found(self) -> None:
        """Do nothing: raffed's own factories are always there, and importing one takes seconds."""

    def described(self) -> Described:
        """Read the declared arguments and docstrings from the source text."""
        return described(f"raffed.methods.{self.module}", self.factory)

    def make(self, given: Mapping[str, Value]) -> Method:
        """Return the method with these arguments."""
        return self.load()(**given)


METHODS: dict[str, MethodInfo] = {
    "apfl": MethodInfo(
        "APFL", "Deng et al. 2020", "apfl", "apfl", "a private model mixed with the shared one"
    ),
    "ccvr": MethodInfo(
        "CCVR", "Luo et al. 2021", "ccvr", "ccvr", "the head retrained on virtual features at the end"
    ),
    "creff": MethodInfo(
        "CReFF",
        "Shang et al. 2022",
        "creff",
        "creff",
        "the head retrained on federated features",
        revision=2,  # since revision 2 the cosine of the matching has the official code's 1e-6
    ),
    "ditto": MethodInfo(
        "Ditto", "Li et al. 2021", "ditto", "ditto", "FedAvg beside a personal model pulled to it"
    ),
    "dittors": MethodInfo(
        "DittoRS", "Li et al. 2024", "ditto", "dittors", "Ditto with restricted softmax in shared training"
    ),
    "fedadagrad": MethodInfo(
        "FedAdagrad", "Reddi et al. 2021", "fedopt", "fedadagrad", "Adagrad on the server"
    ),
    "fedadam": MethodInfo("FedAdam", "Reddi et al. 2021", "fedopt", "fedadam", "Adam on the server"),
    "fedala": MethodInfo(
        "FedALA", "Zhang et al. 2023", "fedala", "fedala", "download and own last model mixed before training"
    ),
    "fedas": MethodInfo(
        "FedAS", "Yang et al. 2024", "fedas", "fedas", "body aligned with the client's own features first"
    ),
    "fedavg": MethodInfo(
        "FedAvg", "McMahan et al. 2017", "fedavg", "fedavg", "sample-weighted mean of local models"
    ),
    "fedavgm": MethodInfo(
        "FedAvgM",
        "Hsu et al. 2019",
        "fedopt",
        "fedavgm",
        "momentum on the server",
        revision=2,  # since revision 2 the mean has the weights n_k/n, as in the paper
    ),
    "fedaws": MethodInfo("FedAwS", "Yu et al. 2020", "fedaws", "fedaws", "server spreads the class proxies"),
    "fedbabu": MethodInfo(
        "FedBABU", "Oh et al. 2022", "fedbabu", "fedbabu", "the head keeps its initial draw, the body learns"
    ),
    "fedbn": MethodInfo(
        "FedBN", "Li et al. 2021", "fedbn", "fedbn", "BatchNorm layers stay with their client"
    ),
    "feddbe": MethodInfo(
        "FedDBE", "Zhang et al. 2023", "feddbe", "feddbe", "features translated privately, their means pulled"
    ),
    "feddc": MethodInfo(
        "FedDC", "Gao et al. 2022", "feddc", "feddc", "local drift decoupled, gradient correction"
    ),
    "feddecorr": MethodInfo(
        "FedDecorr",
        "Shi et al. 2023",
        "feddecorr",
        "feddecorr",
        "features of every batch decorrelated",
    ),
    "feddf": MethodInfo(
        "FedDF",
        "Lin et al. 2020",
        "feddf",
        "feddf",
        "the clients' ensemble distilled on the server",
        revision=2,  # since revision 2 the server's images lie channels last, as the clients' do
    ),
    "feddisco": MethodInfo(
        "FedDisco", "Ye et al. 2023", "feddisco", "feddisco", "unevenly distributed clients weigh less"
    ),
    "feddyn": MethodInfo(
        "FedDyn", "Acar et al. 2021", "feddyn", "feddyn", "dynamic regularisation by the client's history"
    ),
    "fedetf": MethodInfo(
        "FedETF", "Li et al. 2023", "fedetf", "fedetf", "unit features, frozen simplex ETF, balanced softmax"
    ),
    "fedexp": MethodInfo(
        "FedExP", "Jhunjhunwala et al. 2023", "fedexp", "fedexp", "the server goes further than the mean"
    ),
    "fedgamma": MethodInfo(
        "FedGAMMA", "Dai et al. 2023", "fedgamma", "fedgamma", "FedSAM's gradients with SCAFFOLD's controls"
    ),
    "fedgela": MethodInfo(
        "FedGELA", "Fan et al. 2023", "fedgela", "fedgela", "a frozen simplex ETF, scaled by shares at home"
    ),
    "fedic": MethodInfo(
        "FEDIC",
        "Shang et al. 2022",
        "fedic",
        "fedic",
        "the calibrated ensemble distilled on the server",
        revision=2,  # as FedDF's
    ),
    "fedlc": MethodInfo(
        "FedLC", "Zhang et al. 2022", "fedlc", "fedlc", "logits lowered by a margin for rare classes"
    ),
    "fedlesam": MethodInfo(
        "FedLESAM", "Fan et al. 2024", "fedlesam", "fedlesam", "gradients taken against the server's movement"
    ),
    "fedlmd": MethodInfo(
        "FedLMD", "Lu et al. 2023", "fedlmd", "fedlmd", "the download teaches the minority classes"
    ),
    "fedloge": MethodInfo(
        "FedLoGe", "Xiao et al. 2024", "fedloge", "fedloge", "body under a sparse ETF, two heads beside it"
    ),
    "fedmmd": MethodInfo(
        "FedMMD", "Yao et al. 2018", "fedmmd", "fedmmd", "features kept near the global model's by MMD"
    ),
    "fedmr": MethodInfo(
        "FedMR", "Fan et al. 2023", "fedmr", "fedmr", "decorrelated classes, margins to prototypes"
    ),
    "fednh": MethodInfo(
        "FedNH", "Dai et al. 2023", "fednh", "fednh", "cosine head that moves towards the class means"
    ),
    "fednova": MethodInfo(
        "FedNova", "Wang et al. 2020", "fednova", "fednova", "updates normalised by local steps"
    ),
    "fedntd": MethodInfo(
        "FedNTD", "Lee et al. 2022", "fedntd", "fedntd", "the download teaches all but the true class"
    ),
    "fedper": MethodInfo(
        "FedPer", "Arivazhagan et al. 2019", "fedrep", "fedper", "shared body, private head, trained together"
    ),
    "fedphp": MethodInfo(
        "FedPHP", "Li et al. 2021", "fedphp", "fedphp", "inherited private model teaches local training"
    ),
    "fedproc": MethodInfo(
        "FedProc", "Mu et al. 2023", "fedproc", "fedproc", "prototypical contrast, then cross-entropy"
    ),
    "fedproto": MethodInfo(
        "FedProto",
        "Tan et al. 2022",
        "fedproto",
        "fedproto",
        "class prototypes are shared, weights are not",
        revision=2,  # since revision 2 the preset authors sends features as seen in training
    ),
    "fedprox": MethodInfo(
        "FedProx", "Li et al. 2020", "fedprox", "fedprox", "quadratic pull to the global model"
    ),
    "fedrep": MethodInfo(
        "FedRep", "Collins et al. 2021", "fedrep", "fedrep", "shared body, private head, trained in turn"
    ),
    "fedrod": MethodInfo(
        "FedROD", "Chen & Chao 2022", "fedrod", "fedrod", "balanced generic head, personal head on top"
    ),
    "fedrs": MethodInfo("FedRS", "Li & Zhan 2021", "fedrs", "fedrs", "softmax restricted on missing classes"),
    "fedsam": MethodInfo(
        "FedSAM", "Qu et al. 2022", "fedsam", "fedsam", "gradients taken where the loss is highest nearby"
    ),
    "fedtgp": MethodInfo(
        "FedTGP", "Zhang et al. 2024", "fedtgp", "fedtgp", "prototypes trained by the server, no weights sent"
    ),
    "feduv": MethodInfo(
        "FedUV", "Son et al. 2024", "feduv", "feduv", "varied predictions and spread features"
    ),
    "fedvls": MethodInfo(
        "FedVLS",
        "Guo et al. 2025",
        "fedvls",
        "fedvls",
        "the download teaches the classes a client lacks",
    ),
    "fedyogi": MethodInfo("FedYogi", "Reddi et al. 2021", "fedopt", "fedyogi", "Yogi on the server"),
    "finetune": MethodInfo(
        "FedAvg+FT", "Collins et al. 2021", "finetune", "finetune", "FedAvg, then local fine-tuning"
    ),
    "flda": MethodInfo(
        "FLDA", "Peterson et al. 2019", "flda", "flda", "shared and private model mixed by a private gate"
    ),
    "gldp": MethodInfo(
        "GLDP", "STHFL 2023", "gldp", "gldp", "local and global prototypes, nearest-prototype prediction"
    ),
    "lgfedavg": MethodInfo(
        "LG-FedAvg", "Liang et al. 2020", "lgfedavg", "lgfedavg", "private body under a shared head"
    ),
    "map": MethodInfo(
        "MAP", "Li et al. 2024", "map", "map_", "FedRS on the server, inherited private model at home"
    ),
    "moon": MethodInfo(
        "MOON", "Li et al. 2021", "moon", "moon", "features contrasted with the previous model's"
    ),
    "mpfedcon": MethodInfo(
        "MpFedcon", "MpFedcon 2022", "mpfedcon", "mpfedcon", "encoder contrasted with class centres"
    ),
    "noisygrad": MethodInfo(
        "FedAvg with noise", "Zhu et al. 2019", "noisygrad", "noisygrad", "noise on every gradient"
    ),
    "perfedavg": MethodInfo(
        "Per-FedAvg", "Fallah et al. 2020", "perfedavg", "perfedavg", "a model that adapts in one step"
    ),
    "pfedfda": MethodInfo(
        "pFedFDA", "McLaughlin & Su 2024", "pfedfda", "pfedfda", "output layers from Gaussian features"
    ),
    "pfedme": MethodInfo(
        "pFedMe", "Dinh et al. 2020", "pfedme", "pfedme", "personal models near the shared one"
    ),
    "priorce": MethodInfo(
        "PriorCE", "Ren et al. 2020", "priorce", "priorce", "logits with the log of the client's class prior"
    ),
    "scaffold": MethodInfo(
        "SCAFFOLD", "Karimireddy et al. 2020", "scaffold", "scaffold", "control variates against drift"
    ),
    "scamap": MethodInfo(
        "ScaMAP", "Li et al. 2024", "map", "scamap", "ScaRS with MAP's inherited private model"
    ),
    "scars": MethodInfo("ScaRS", "Li et al. 2024", "map", "scars", "SCAFFOLD with restricted softmax"),
    "solo": MethodInfo("SOLO", "local training", "solo", "solo", "local training only, nothing is sent"),
}
