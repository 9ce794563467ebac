"""What crosses the line: the golden table letter by letter, and the papers' traffic tables in numbers."""

from __future__ import annotations

import difflib

import pytest

from raffed.core.boundary import Broadcast
from raffed.core.method import Spec
from raffed.core.network import Network
from raffed.core.round import server_init
from raffed.methods import METHODS, build_method
from raffed.models import build
from tests.golden.regenerate import WIRE, B, P, section, table
from tests.tiny import CLASSES, WIDTH, Tiny, network, over_methods


def test_the_wire_table_is_the_one_that_was_agreed_on() -> None:
    """A change of what leaves a client is a decision: `python -m tests.golden.regenerate`, then read the diff."""
    diff = "\n".join(difflib.unified_diff(WIRE.read_text().splitlines(), table().splitlines(), "agreed", "now", lineterm=""))
    assert not diff, f"what is sent or kept has changed:\n{diff}"


@over_methods
def test_every_method_has_its_part_in_the_table(name: str) -> None:
    assert f"\n{name}  (" in WIRE.read_text()


def test_the_table_lists_every_method_and_nothing_else() -> None:
    heads = [line for line in WIRE.read_text().splitlines()[4:] if line and not line.startswith(" ")]
    assert [line.split()[0] for line in heads] == list(METHODS)


# map.md §3.4, baselines-map.md §2, fedmr.md §4: (down, up, client keeps, server keeps beyond w, b) in numbers.
G = CLASSES * WIDTH
HEAD = G + CLASSES  # the tiny network's head has a bias, the papers' have none: there it is C·d
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
    "ditto": (P + B, P + B + 1, P + B, 0),  # baselines-map.md §10
    "dittors": (P + B, P + B + 1, P + B, 0),
    "fedrod": (P + B, P + B + 1, HEAD, 0),  # §11
    "fedrep": (P - HEAD + B, P - HEAD + B + 1, HEAD, 0),  # §12
    "fedavgm": (P + B, P + B, 0, 0),  # uniform means send no n_k
    "fedaws": (P + B, P + B + 1, 0, 0),
    "fedmmd": (P + B, P + B + 1, 0, 0),
    "finetune": (P + B, P + B + 1, 0, 0),
}


@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_and_memory_are_those_of_the_papers_tables(name: str) -> None:
    """P = 53, b = 10. A float or a count is 4 bytes, a flag (FedMR's `known` [C], down) 1."""
    tiny = Tiny(build_method(name), net=network(norm=True)).run(2, [0, 1, 2, 3])
    sent, done = tiny.server.broadcast(), tiny.last[1]
    down, up, kept, held = TRAFFIC[name]
    flags = CLASSES if name == "fedmr" else 0
    assert sum(sent.numbers().values()) == down
    assert sent.nbytes() == 4 * (down - flags) + flags
    assert sum(done.upload.numbers().values()) == up
    assert done.upload.nbytes() == 4 * up
    memory = [line for line in section(name) if line.startswith("  client keeps")]
    assert int(memory[0].split()[-2]) == 4 * kept + (4 if "Heirloom" in str(done.vault) else 0)  # a counter is stored in 8
    assert sum(n for field, n in sent.numbers().items() if field.startswith("slots")) == held


@pytest.mark.parametrize(
    ("channels", "side", "trainable", "total", "with_prototypes"),
    [(1, 28, 11_172_810, 11_182_410, 11_187_530), (3, 32, 11_173_962, 11_183_562, 11_188_682)],
)
def test_fedmrs_table_3_is_reproduced_by_resnet_18(
    channels: int, side: int, trainable: int, total: int, with_prototypes: int
) -> None:
    """fedmr.md §4: trainable + 9,600 BatchNorm statistics + C·d = 10 · 512 for prototypes, one direction."""
    net = Network(build("resnet18", (channels, side, side), 10, 0))
    sent: Broadcast = server_init(build_method("fedmr"), net.initial, Spec(10, net.feature_dim, 10, 1)).broadcast()
    numbers = sent.numbers()
    assert numbers["w"] == trainable
    assert numbers["w"] + numbers["b"] == total
    assert total + numbers["slots.term-InterClass.mean"] == with_prototypes


def test_the_bytes_a_run_reports_are_those_of_its_messages() -> None:
    """MLP 64-8-10 on digits: P = 64·8 + 8 + 8·10 + 10 = 610; up P + 1 a client; 3 participants."""
    import raffed
    from raffed import Data, Federation, Local, Model, RunConfig, Runtime

    config = RunConfig(
        data=Data(split="iid:6"), model=Model("mlp", {"hidden": [8]}), local=Local(epochs=1),
        federation=Federation(rounds=1, participation=0.5), runtime=Runtime(execution="serial"),
    )  # fmt: skip
    rows = raffed.run(config).to_pandas()
    loss = rows[(rows["metric"] == "loss") & (rows["split"] == "train")]
    assert list(loss[loss["client"].isna()]["bytes_up"]) == [3 * 4 * 611]
    assert list(loss[loss["client"].isna()]["bytes_down"]) == [3 * 4 * 610]
    assert list(loss[loss["client"].notna()]["bytes_up"]) == [4 * 611] * 3
