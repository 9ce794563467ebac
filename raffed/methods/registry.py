"""The table of raffed's own methods: name → factory. A new one is a file beside this one and a line here.

Factories are imported when asked for, so that listing them needs neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from raffed.config.source import Described, described
from raffed.config.validation import Doc, Value
from raffed.methods.own import Space

if TYPE_CHECKING:
    from raffed.core.method import Factory, Method

# Arguments that several methods take with one meaning.


Preset = Literal["original", "authors"]
Variant = Annotated[
    Preset,
    Doc("Variant of the method: as published (original) or as in MAP's released code (authors)."),
]


@dataclass(frozen=True)
class MethodInfo:
    """Where a factory lives and one line about it. Its file and function have the method's name unless given.

    `revision` counts the meanings that the method's arguments have had. It is raised by a change after which
    the same arguments give another result, so that a run of the earlier revision is not continued. `scored`
    says which model a client's accuracy is of after a round, where clients download models of their own:
    "downloaded" or "trained".
    """

    name: str
    title: str
    source: str
    idea: str
    module: str = ""
    factory: str = ""
    revision: int = 1
    scored: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", self.module or self.name)
        object.__setattr__(self, "factory", self.factory or self.name)

    def load(self) -> Factory:
        factory: Factory = getattr(importlib.import_module(f"raffed.methods.{self.module}"), self.factory)
        return factory

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
    info.name: info
    for info in (
        MethodInfo("apfl", "APFL", "Deng et al. 2020", "a private model mixed with the shared one"),
        MethodInfo("ccvr", "CCVR", "Luo et al. 2021", "the head retrained on virtual features at the end"),
        MethodInfo(
            "creff",
            "CReFF",
            "Shang et al. 2022",
            "the head retrained on federated features",
            revision=2,  # since revision 2 the cosine of the matching has the official code's 1e-6
        ),
        MethodInfo(
            "cwfedavg", "cwFedAvg", "Lee & Choi 2025", "class models mixed by client", scored="downloaded"
        ),
        MethodInfo("ditto", "Ditto", "Li et al. 2021", "FedAvg beside a personal model pulled to it"),
        MethodInfo(
            "dittors",
            "DittoRS",
            "Li et al. 2024",
            "Ditto with restricted softmax in shared training",
            module="ditto",
        ),
        MethodInfo("fedacg", "FedACG", "Kim et al. 2024", "clients begin where the server's momentum leads"),
        MethodInfo("fedadagrad", "FedAdagrad", "Reddi et al. 2021", "Adagrad on the server", module="fedopt"),
        MethodInfo("fedadam", "FedAdam", "Reddi et al. 2021", "Adam on the server", module="fedopt"),
        MethodInfo(
            "fedala", "FedALA", "Zhang et al. 2023", "download and own last model mixed before training"
        ),
        MethodInfo("fedamp", "FedAMP", "Huang et al. 2021", "mixtures of similar models", scored="trained"),
        MethodInfo("fedas", "FedAS", "Yang et al. 2024", "body aligned with the client's own features first"),
        MethodInfo("fedavg", "FedAvg", "McMahan et al. 2017", "sample-weighted mean of local models"),
        MethodInfo(
            "fedavgm",
            "FedAvgM",
            "Hsu et al. 2019",
            "momentum on the server",
            module="fedopt",
            revision=2,  # since revision 2 the mean has the weights n_k/n, as in the paper
        ),
        MethodInfo("fedawa", "FedAWA", "Shi et al. 2025", "the server learns the weights of the mean"),
        MethodInfo("fedaws", "FedAwS", "Yu et al. 2020", "server spreads the class proxies"),
        MethodInfo(
            "fedbabu", "FedBABU", "Oh et al. 2022", "the head keeps its initial draw, the body learns"
        ),
        MethodInfo("fedbn", "FedBN", "Li et al. 2021", "BatchNorm layers stay with their client"),
        MethodInfo("fedcm", "FedCM", "Xu et al. 2021", "steps mixed with the last round's mean update"),
        MethodInfo(
            "feddbe", "FedDBE", "Zhang et al. 2023", "features translated privately, their means pulled"
        ),
        MethodInfo("feddc", "FedDC", "Gao et al. 2022", "local drift decoupled, gradient correction"),
        MethodInfo("feddecorr", "FedDecorr", "Shi et al. 2023", "features of every batch decorrelated"),
        MethodInfo(
            "feddf",
            "FedDF",
            "Lin et al. 2020",
            "the clients' ensemble distilled on the server",
            revision=2,  # since revision 2 the server's images lie channels last, as the clients' do
        ),
        MethodInfo("feddisco", "FedDisco", "Ye et al. 2023", "unevenly distributed clients weigh less"),
        MethodInfo("feddyn", "FedDyn", "Acar et al. 2021", "dynamic regularisation by the client's history"),
        MethodInfo(
            "fedetf", "FedETF", "Li et al. 2023", "unit features, frozen simplex ETF, balanced softmax"
        ),
        MethodInfo("fedexp", "FedExP", "Jhunjhunwala et al. 2023", "the server goes further than the mean"),
        MethodInfo(
            "fedfew", "FedFew", "Guo et al. 2026", "K models, trained by all clients", scored="trained"
        ),
        MethodInfo(
            "fedfomo", "FedFomo", "Zhang et al. 2021", "models of others that do better", scored="trained"
        ),
        MethodInfo("fedgamma", "FedGAMMA", "Dai et al. 2023", "FedSAM's gradients with SCAFFOLD's controls"),
        MethodInfo("fedgela", "FedGELA", "Fan et al. 2023", "a frozen simplex ETF, scaled by shares at home"),
        MethodInfo(
            "fedic",
            "FEDIC",
            "Shang et al. 2022",
            "the calibrated ensemble distilled on the server",
            revision=2,  # as FedDF's
        ),
        MethodInfo("fedlc", "FedLC", "Zhang et al. 2022", "logits lowered by a margin for rare classes"),
        MethodInfo(
            "fedlesam", "FedLESAM", "Fan et al. 2024", "gradients taken against the server's movement"
        ),
        MethodInfo("fedlmd", "FedLMD", "Lu et al. 2023", "the download teaches the minority classes"),
        MethodInfo("fedloge", "FedLoGe", "Xiao et al. 2024", "body under a sparse ETF, two heads beside it"),
        MethodInfo("fedlws", "FedLWS", "Shi et al. 2025", "the mean shrunk layer by layer"),
        MethodInfo("fedmmd", "FedMMD", "Yao et al. 2018", "features kept near the global model's by MMD"),
        MethodInfo("fedmr", "FedMR", "Fan et al. 2023", "decorrelated classes, margins to prototypes"),
        MethodInfo("fednh", "FedNH", "Dai et al. 2023", "cosine head that moves towards the class means"),
        MethodInfo("fednova", "FedNova", "Wang et al. 2020", "updates normalised by local steps"),
        MethodInfo("fedntd", "FedNTD", "Lee et al. 2022", "the download teaches all but the true class"),
        MethodInfo("fedpac", "FedPAC", "Xu et al. 2023", "heads combined for each client", scored="trained"),
        MethodInfo(
            "fedper",
            "FedPer",
            "Arivazhagan et al. 2019",
            "shared body, private head, trained together",
            module="fedrep",
        ),
        MethodInfo("fedphp", "FedPHP", "Li et al. 2021", "inherited private model teaches local training"),
        MethodInfo("fedproc", "FedProc", "Mu et al. 2023", "prototypical contrast, then cross-entropy"),
        MethodInfo(
            "fedproto",
            "FedProto",
            "Tan et al. 2022",
            "class prototypes are shared, weights are not",
            revision=2,  # since revision 2 the preset authors sends features as seen in training
        ),
        MethodInfo("fedprox", "FedProx", "Li et al. 2020", "quadratic pull to the global model"),
        MethodInfo("fedrep", "FedRep", "Collins et al. 2021", "shared body, private head, trained in turn"),
        MethodInfo("fedrod", "FedROD", "Chen & Chao 2022", "balanced generic head, personal head on top"),
        MethodInfo("fedrs", "FedRS", "Li & Zhan 2021", "softmax restricted on missing classes"),
        MethodInfo("fedsam", "FedSAM", "Qu et al. 2022", "gradients taken where the loss is highest nearby"),
        MethodInfo(
            "fedtgp", "FedTGP", "Zhang et al. 2024", "prototypes trained by the server, no weights sent"
        ),
        MethodInfo("feduv", "FedUV", "Son et al. 2024", "varied predictions and spread features"),
        MethodInfo("fedvls", "FedVLS", "Guo et al. 2025", "the download teaches the classes a client lacks"),
        MethodInfo("fedwmsam", "FedWMSAM", "Li et al. 2025", "personal momentum that also looks ahead"),
        MethodInfo("fedyogi", "FedYogi", "Reddi et al. 2021", "Yogi on the server", module="fedopt"),
        MethodInfo("finetune", "FedAvg+FT", "Collins et al. 2021", "FedAvg, then local fine-tuning"),
        MethodInfo(
            "flda", "FLDA", "Peterson et al. 2019", "shared and private model mixed by a private gate"
        ),
        MethodInfo("gldp", "GLDP", "STHFL 2023", "local and global prototypes, nearest-prototype prediction"),
        MethodInfo(
            "ifca", "IFCA", "Ghosh et al. 2020", "K models, chosen by loss", revision=2, scored="downloaded"
        ),
        MethodInfo("lgfedavg", "LG-FedAvg", "Liang et al. 2020", "private body under a shared head"),
        MethodInfo(
            "map",
            "MAP",
            "Li et al. 2024",
            "FedRS on the server, inherited private model at home",
            factory="map_",
        ),
        MethodInfo("mofedsam", "MoFedSAM", "Qu et al. 2022", "FedCM's steps with FedSAM's gradients"),
        MethodInfo("moon", "MOON", "Li et al. 2021", "features contrasted with the previous model's"),
        MethodInfo("mpfedcon", "MpFedcon", "MpFedcon 2022", "encoder contrasted with class centres"),
        MethodInfo("noisygrad", "FedAvg with noise", "Zhu et al. 2019", "noise on every gradient"),
        MethodInfo("perfedavg", "Per-FedAvg", "Fallah et al. 2020", "a model that adapts in one step"),
        MethodInfo("pfedfda", "pFedFDA", "McLaughlin & Su 2024", "output layers from Gaussian features"),
        MethodInfo("pfedme", "pFedMe", "Dinh et al. 2020", "personal models near the shared one"),
        MethodInfo(
            "priorce", "PriorCE", "Ren et al. 2020", "logits with the log of the client's class prior"
        ),
        MethodInfo("scaffold", "SCAFFOLD", "Karimireddy et al. 2020", "control variates against drift"),
        MethodInfo(
            "scamap", "ScaMAP", "Li et al. 2024", "ScaRS with MAP's inherited private model", module="map"
        ),
        MethodInfo("scars", "ScaRS", "Li et al. 2024", "SCAFFOLD with restricted softmax", module="map"),
        MethodInfo("solo", "SOLO", "local training", "local training only, nothing is sent"),
    )
}
