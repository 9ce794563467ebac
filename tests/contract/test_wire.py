"""What crosses the line: the golden table letter by letter, and the papers' traffic tables in numbers."""

from __future__ import annotations

import difflib

import pytest
import torch

from raffed.core.context import Context, Spec
from raffed.core.messages import Broadcast, Upload
from raffed.core.round import server_init
from raffed.core.server import replied
from raffed.core.training.network import Network
from raffed.methods import METHODS, build_method
from raffed.methods.common import HeldSums
from raffed.methods.creff import FeatureGradients, RetrainedHead
from raffed.methods.gldp import Remembered
from raffed.models import build
from tests.golden.regenerate import WIRE, B, P, section, table
from tests.tiny import CLASSES, WIDTH, bare_context, experienced, over_methods


def test_the_wire_table_is_the_one_that_was_agreed_on() -> None:
    """A change of what leaves a client is a decision: `python -m tests.golden.regenerate`, then read the
    diff.
    """
    diff = "\n".join(
        difflib.unified_diff(
            WIRE.read_text().splitlines(), table().splitlines(), "agreed", "now", lineterm=""
        )
    )
    assert not diff, f"what is sent or kept has changed:\n{diff}"


@over_methods
def test_every_method_has_its_part_in_the_table(name: str) -> None:
    assert f"\n{name}  (" in WIRE.read_text()


def test_the_table_lists_every_method_and_nothing_else() -> None:
    heads = [line for line in WIRE.read_text().splitlines()[4:] if line and not line.startswith(" ")]
    assert [line.split()[0] for line in heads] == list(METHODS)


# docs/papers/map.md §3.4, docs/papers/baselines.md, SCAFFOLD, docs/papers/fedmr.md §4: (down, up, client
# keeps, server keeps beyond w, b) in numbers; of client 1, which holds two classes.
G = CLASSES * WIDTH
HELD = 2
HEAD = G + CLASSES  # the tiny network's head has a bias, the papers' have none: there it is C·d
NORM = 2 * WIDTH  # a scale and an offset for each feature
TRIANGLE = WIDTH * (WIDTH + 1) // 2  # of a covariance
TRAFFIC: dict[str, tuple[int, int, int, int]] = {
    "fedavg": (P + B, P + B + 1, 0, 0),
    "fedprox": (P + B, P + B + 1, 0, 0),
    "fedrs": (P + B, P + B + 1, 0, 0),
    "fedphp": (P + B, P + B + 1, P + B + 1, 0),
    "map": (P + B, P + B + 1, P + B + 1, 0),
    "scaffold": (2 * P + B, 2 * P + B, P, P),
    "scars": (2 * P + B, 2 * P + B, P, P),
    "scamap": (2 * P + B, 2 * P + B, 2 * P + B + 1, P),
    "fedmr": (P + B + G + CLASSES, P + B + 1 + G + CLASSES, 0, G + CLASSES),  # flags down, counts up
    "ditto": (P + B, P + B + 1, P + B, 0),  # docs/papers/baselines-personal.md, Ditto
    "dittors": (P + B, P + B + 1, P + B, 0),
    "fedrod": (P + B, P + B + 1, HEAD, 0),  # docs/papers/baselines-personal.md, FedROD
    "fedrep": (P - HEAD + B, P - HEAD + B + 1, HEAD, 0),  # docs/papers/baselines-personal.md, FedRep
    "fedper": (P - HEAD + B, P - HEAD + B + 1, HEAD, 0),  # docs/papers/baselines-personal.md, first table
    "fedala": (P + B, P + B + 1, 2 * HEAD + 2, 0),  # W, the last model's head, and two flags
    "fedas": (
        P - HEAD + B,
        P - HEAD + B + 1,
        HEAD + G + CLASSES,
        0,
    ),  # a trace up; class means and flags kept
    "pfedfda": (
        P + B + G + TRIANGLE + CLASSES,
        P + B + 1 + G + TRIANGLE + CLASSES + 1,
        0,
        G + TRIANGLE + CLASSES,
    ),
    "fedbn": (P - NORM, P - NORM, NORM + B, 0),  # uniform means send no n_k; BatchNorm stays
    "lgfedavg": (HEAD, HEAD, P - HEAD + B, 0),  # the mirror image of fedper
    "fedproto": (
        G + CLASSES,
        HELD * (WIDTH + 1),
        P + B,
        G + CLASSES,
    ),  # docs/papers/baselines-personal.md, FedProto: |C_k| (d + 1)
    # docs/papers/gldp.md §8: S (d + 1) up, with ids, no n (uniform means); the client keeps ν and Ĉ
    "gldp": (P - HEAD + B + G + CLASSES, P - HEAD + B + HELD * (WIDTH + 1), HEAD + G + CLASSES, G + CLASSES),
    # docs/papers/mpfedcon.md §3: S (d + 1) up and |D_i|; a network without a projection keeps its head
    "mpfedcon": (P - HEAD + B + G + CLASSES, P - HEAD + B + 1 + HELD * (WIDTH + 1), HEAD, G + CLASSES),
    # docs/papers/baselines-personal.md, first table, docs/papers/baselines.md, CReFF: d C + C down, |C_k| (d
    # C + C) up
    "creff": (P + B + HEAD, P + B + 1 + HELD * (WIDTH * CLASSES + CLASSES), 0, HEAD),
    "fedavgm": (P + B, P + B + 1, 0, 0),  # n_k, which its means are weighted by
    "fedadam": (P + B, P + B, 0, 0),  # uniform means send no n_k
    "fedaws": (P + B, P + B + 1, 0, 0),
    "ccvr": (P + B, P + B + 1, 0, 0),  # before the last round; the last one's are in test_creff_ccvr
    "feddbe": (P + B + WIDTH + 1, P + B + 1, WIDTH, WIDTH + 1),  # ḡ and a flag; its sums go up once
    "feddisco": (P + B, P + B + 2, 0, 0),  # n_k and d_k
    "fedexp": (P + B, P + B + 2, 0, 0),  # n_k and n_k ‖Δ_k‖²
    "fedmmd": (P + B, P + B + 1, 0, 0),
    "fedgamma": (2 * P + B, 2 * P + B, P, P),
    "fedacg": (P + B, P + B, 0, 0),
    "fedawa": (P + B, P + B + 1, 0, 0),  # n_k
    "fedcm": (2 * P + B, P + B + 1, 0, P),  # m down, Σ_j η_j up
    "fedlws": (P + B, P + B + 1, 0, 0),
    "fedwmsam": (3 * P + B + 1, P + B + 2, P, 2 * P + 1),  # m, c and α down, two numbers up, c_k kept
    "mofedsam": (2 * P + B, P + B + 1, 0, P),
    "fedlesam": (P + B, P + B + 1, P, 0),
    "fedlmd": (P + B, P + B + 1, 0, 0),
    "fedntd": (P + B, P + B + 1, 0, 0),
    "fedsam": (P + B, P + B + 1, 0, 0),
    "feddecorr": (P + B, P + B + 1, 0, 0),
    "fedlc": (P + B, P + B + 1, 0, 0),
    "feduv": (P + B, P + B + 1, 0, 0),
    "fedvls": (P + B, P + B + 1, 0, 0),
    "finetune": (P + B, P + B + 1, 0, 0),
    "cwfedavg": (P + B, P + B + 1, 0, 0),  # replies: a mixture in place of the mean
    "fedamp": (P + B, P + B, 0, 0),
    "ifca": (4 * (P + B), P + B + 4, 0, 3 * (P + B)),  # four models down; one and four shares up
    "fedfew": (3 * (P + B), 3 * (P + B) + 3, 0, 2 * (P + B)),  # three models, and up a loss of each
    # The models of the three others and their numbers; up four ω; θ^old beside the own model
    "fedfomo": (3 * (P + B + 1), P + B + 4, 2 * (P + B), 3 * (P + B + 1)),
    # V and h beside the sums of the classes; a head in place of the mean head
    "fedpac": (P + B + G + CLASSES, P + B + 1 + 1 + G + HELD * (WIDTH + 1), 0, G + CLASSES),
    "priorce": (P + B, P + B + 1, 0, 0),
}


FLAGS = {
    "pfedfda": (CLASSES, 0),
    "fedas": (0, CLASSES),
    "fedala": (0, 2),
    "feddbe": (1, 0),
    "fedmr": (CLASSES, 0),
    "fedpac": (CLASSES, 0),
    "fedproto": (CLASSES, 0),
    "gldp": (CLASSES, CLASSES),
    "mpfedcon": (CLASSES, 0),
}  # down, kept


@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_and_memory_are_those_of_the_papers_tables(name: str) -> None:
    """P = 53, b = 10. A float, a count or an id is 4 bytes, a flag (`known` [C]) 1."""
    tiny = experienced(name, norm=True)
    sent, done = replied(tiny.server.broadcast(), 1), tiny.last[1]
    down, up, kept, held = TRAFFIC[name]
    flags, kept_flags = FLAGS.get(name, (0, 0))
    assert sum(sent.numbers().values()) == down
    assert sent.nbytes() == 4 * (down - flags) + flags
    assert sum(done.upload.numbers().values()) == up
    assert done.upload.nbytes() == 4 * up
    memory = [line for line in section(name) if line.startswith("  client keeps")]
    # A counter is stored in 8
    stored = 4 * kept - 3 * kept_flags + (4 if "Heirloom" in str(done.client_state) else 0)
    assert int(memory[0].split()[-2]) == stored
    assert sum(n for field, n in sent.numbers().items() if field.startswith("slots")) == held


@pytest.mark.parametrize(
    ("model", "shape", "classes", "trainable", "total", "with_prototypes"),
    [
        ("resnet18", (1, 28, 28), 10, 11_172_810, 11_182_410, 11_187_530),  # FMNIST
        ("resnet18", (3, 32, 32), 10, 11_173_962, 11_183_562, 11_188_682),  # SVHN, CIFAR-10
        ("wrn28", (3, 32, 32), 100, 36_546_980, 36_564_932, 36_628_932),  # CIFAR-100
        ("efficientnet_b0", (3, 200, 200), 8, 4_832_516, 4_874_532, 4_879_652),  # ISIC2019
    ],
)
def test_fedmrs_table_3_is_reproduced(
    model: str, shape: tuple[int, int, int], classes: int, trainable: int, total: int, with_prototypes: int
) -> None:
    """docs/papers/fedmr.md §4: trainable + BatchNorm statistics + C·d for prototypes, one direction."""
    net = Network(build(model, shape, classes, 0))
    sent: Broadcast = server_init(
        build_method("fedmr"), net.initial, Spec(classes, net.feature_dim, 10, 1)
    ).broadcast()
    numbers = sent.numbers()
    assert numbers["w"] == trainable
    assert numbers["w"] + numbers["b"] == total
    assert total + numbers["slots.term-InterClass.mean"] == with_prototypes


BODY = 44_713_728  # docs/papers/gldp.md §8: 4 (11,168,832 + 9,600)


def twenty_classes() -> Context:
    """A client with two samples of each of 20 out of 100 classes, features [512]; the server's head is
    100 x 512.
    """
    y = torch.arange(20).repeat(2)
    batch = torch.randn(40, 512, generator=torch.Generator().manual_seed(0)), y
    return bare_context(
        spec=Spec(100, 512, 20, 1),
        class_counts=torch.bincount(y, minlength=100),
        features=lambda _: iter([batch]),
        mine=Remembered(torch.zeros(100, 512), torch.zeros(100, dtype=torch.bool)),
        server=RetrainedHead(torch.zeros(100, 512), torch.zeros(100)),
    )


@pytest.mark.parametrize(("classes", "head"), [(10, 5_130), (100, 51_300), (200, 102_600)])
def test_gldp_s_messages_with_resnet_18_have_the_sheet_s_bytes(classes: int, head: int) -> None:
    """docs/papers/gldp.md §1, §8: the body both ways; up S · 512 floats and S ids: 40,960 B and 80 B for
    S = 20 of 100 classes.
    """
    net, method = Network(build("resnet18", (3, 32, 32), classes, 0)), build_method("gldp")
    sent = server_init(method, net.initial, Spec(classes, 512, 20, 1)).broadcast()
    assert net.initial.w.numel() - sent.w.numel() == head
    assert sent.nbytes() == BODY + 4 * classes * 512 + classes
    assert method.personal is not None
    _, told = method.personal.finish(twenty_classes())
    assert told is not None
    assert Upload(None, sent.w, sent.b, {"personal": told}).nbytes() == BODY + 40_960 + 80


def test_creff_s_class_gradients_have_the_sheet_s_bytes() -> None:
    """docs/papers/baselines.md, CReFF: |C_k| (d C + C) floats, 51,300 a class with 100 classes: 4,104,000
    B for 20 of them.
    """
    _, told = FeatureGradients().finish(twenty_classes())
    assert told.nbytes() == 4_104_000
    everything = told.replace(holders=torch.ones(100, dtype=torch.int64))
    assert everything.nbytes() == 20_520_000


def test_mpfedcon_s_messages_with_its_network_have_the_sheet_s_bytes() -> None:
    """docs/papers/mpfedcon.md §3: encoder 307,192, 10 centres of 256 and a mask down; 5 centres, their
    ids and |D_i| up.
    """
    net, method = Network(build("cnn5", (3, 32, 32), 10, 0)), build_method("mpfedcon")
    sent = server_init(method, net.initial, Spec(10, 256, 100, 1)).broadcast()
    assert sent.nbytes() == 4 * 307_192 + 10_240 + 10
    told = HeldSums(torch.zeros(10, 256), torch.tensor([1, 0, 1, 0, 1, 0, 1, 0, 1, 0]))
    assert (
        Upload(500, sent.w, sent.b, {"term-CentreContrast": told}).nbytes()
        == 4 * 307_192 + 4 + 5 * 256 * 4 + 5 * 4
    )


def test_the_bytes_a_run_reports_are_those_of_its_messages() -> None:
    """MLP 64-8-10 on digits: P = 64·8 + 8 + 8·10 + 10 = 610; up P + 1 a client; 3 participants."""
    import raffed
    from raffed import Data, Federation, Local, Model, RunConfig, Runtime

    config = RunConfig(
        data=Data(split="iid:6"),
        model=Model("mlp", {"hidden": [8]}),
        local=Local(epochs=1),
        federation=Federation(rounds=1, participation=0.5),
        runtime=Runtime(execution="serial"),
    )
    rows = raffed.run(config).to_pandas()
    loss = rows[(rows["metric"] == "loss") & (rows["split"] == "train")]
    assert list(loss[loss["client"].isna()]["bytes_up"]) == [3 * 4 * 611]
    assert list(loss[loss["client"].isna()]["bytes_down"]) == [3 * 4 * 610]
    assert list(loss[loss["client"].notna()]["bytes_up"]) == [4 * 611] * 3
