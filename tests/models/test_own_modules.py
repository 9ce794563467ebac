"""What a user's module or one of torchvision's may do: it becomes raffed's network, or is refused before any
work with the remedy.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

import raffed
from raffed.config.training import Local
from raffed.config.validation import Value
from raffed.core import seeds
from raffed.core.context import ClientData
from raffed.core.method import Method
from raffed.core.seeds import forked
from raffed.core.training.network import Network
from raffed.core.training.sgd import batch_stream
from raffed.errors import RaffedError, UsageError
from raffed.models import build, build_for
from raffed.models.net import Dropout, Net
from raffed.models.own import factories
from raffed.models.own.factories import torchvision_names
from raffed.models.own.laws import Laws, check_seeded
from raffed.models.own.wrapping import ModelInputs, OwnNet, as_net
from raffed.runtime.initial_weights import plain_module, start_from
from raffed.testing.federation import TinyFederation
from tests.models.own_nets import CLASSES, FEATURES, LENGTH, SmallNet, Trap
from tests.models.torchvision_table import PAGE, line_of

HOME = "tests.models.own_nets"


def seeded(seed: int = 0) -> SmallNet:
    with forked(seed):
        return SmallNet(10)


def test_the_head_is_the_linear_layer_whose_output_is_returned() -> None:
    net = as_net(Trap(CLASSES), in_shape=(FEATURES,))
    assert as_net(net) is net
    assert net.feature_dim == 8
    assert net.head.out_features == CLASSES
    x = torch.rand(4, FEATURES)
    scores, z = net(x)
    assert torch.equal(scores, net.head(z))


def test_names_begin_with_body_and_head_and_come_back_as_the_user_s() -> None:
    net = as_net(seeded(), "fc")
    assert all(name.startswith(("body.", "head.")) for name in net.state_dict())
    own = plain_module(net)
    assert type(own) is SmallNet
    assert list(own.state_dict()) == list(SmallNet(10).state_dict())
    SmallNet(10).load_state_dict(own.state_dict())
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(own.eval()(x), seeded().eval()(x))


def test_a_wrong_head_and_none_are_refused_with_the_linear_layers_that_there_are() -> None:
    convolutions = nn.Sequential(nn.Conv2d(1, CLASSES, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(1))
    with pytest.raises(UsageError, match=r"calls no nn\.Linear.*name that layer by head="):
        as_net(convolutions, in_shape=(1, 8, 8))
    with pytest.raises(UsageError, match="its linear layers: inner, out, other"):
        as_net(Trap(CLASSES), "fc")
    with pytest.raises(UsageError, match="not the output of its layer 'inner'"):
        as_net(Trap(CLASSES), "inner", in_shape=(FEATURES,))
    with pytest.raises(UsageError, match="not the output of its layer 'out'"):
        as_net(Trap(CLASSES, "softmax"), "out", in_shape=(FEATURES,))


class AfterHead(nn.Module):
    def __init__(self, rule: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.out, self.rule = nn.Linear(4, CLASSES), rule

    def forward(self, x: Tensor) -> Tensor:
        return self.rule(self.out(x))


AFTER_THE_HEAD = {
    "the sum of all positions": ((5, 4), lambda scores: scores.sum(1)),
    "a temperature": ((4,), lambda scores: scores / 0.5),
    "softmax": ((4,), lambda scores: scores.softmax(1)),
}


@pytest.mark.parametrize("what", AFTER_THE_HEAD)
def test_what_is_computed_after_the_head_is_refused(what: str) -> None:
    # The bias begins at 0, and becomes another number in training: then a sum or a factor shows
    shape, rule = AFTER_THE_HEAD[what]
    with forked(0):
        module = AfterHead(rule)
    nn.init.zeros_(module.out.bias)
    for head in (None, "out"):
        with pytest.raises(UsageError, match="not the output of its layer 'out'"):
            as_net(copy.deepcopy(module), head, in_shape=shape)


def test_a_reference_is_built_with_its_own_arguments_and_the_seed_alone() -> None:
    nets = [build(f"{HOME}:SmallNet", (1, 8, 8), 10, seed, width=5) for seed in (1, 1, 2)]
    a, b, c = (net.state_dict() for net in nets)
    assert a["body.stem.weight"].shape == (5, 1, 3, 3)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["body.stem.weight"], c["body.stem.weight"])


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (f"{HOME}:SmallNet", {"widht": 3}, "argument of .*'widht'.*width"),
        (f"{HOME}:Missing", {}, "has no 'Missing'"),
        (f"{HOME}:a_list", {}, "made a list; it must make an nn.Module"),
        (f"{HOME}:SmallNet", {"head": 3}, "not the output of its layer '3'"),
        ("torchvision:resnet18", {"weights": "DEFAULT"}, "--init FILE"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(name: str, args: dict[str, str], message: str) -> None:
    with pytest.raises(RaffedError, match=message) as caught:
        build(name, (1, 8, 8), 10, 0, **args)
    assert "\n" not in str(caught.value)


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    net = as_net(seeded(), "fc")
    weights = SmallNet(10).state_dict()
    weights["extra"] = weights.pop("stem.weight")
    weights["fc.bias"] = torch.zeros(3)
    with pytest.raises(
        UsageError, match=r"missing stem.weight; unexpected extra; other shapes fc.bias 3 for 10"
    ):
        start_from(net, weights, "model.pt")


ROWS, IDS, IMAGES = ModelInputs((FEATURES,)), ModelInputs((LENGTH,), "int64"), ModelInputs((1, 8, 8))
slowly = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


def laws_of(name: str, inputs: ModelInputs, **args: str) -> Laws:
    net = build_for(f"{HOME}:{name}", args, inputs.shape, CLASSES, 0, inputs.dtype)
    return Laws(net, name, inputs, CLASSES)


@slowly
@pytest.mark.parametrize(
    ("name", "kind", "inputs"),
    [
        ("SmallNet", "", IMAGES),
        ("Dropped", "", ROWS),
        ("table", "LayerNorm", ROWS),
        ("table", "BatchNorm", ROWS),
        ("Sentence", "attention", IDS),
        ("Trap", "constants", ROWS),
        ("Trap", "tied", ROWS),
        ("Trap", "frozen", ROWS),
        ("Trap", "lazy", ROWS),
    ],
)
def test_common_layers_keep_every_law_alone_and_stacked(name: str, kind: str, inputs: ModelInputs) -> None:
    key = "trap" if name == "Trap" else "kind"
    laws_of(name, inputs, **({key: kind} if kind else {})).check(2)


def test_recurrent_layers_train_alone_and_are_refused_in_a_stack() -> None:
    laws = laws_of("Sentence", IDS, kind="GRU")
    laws.check(0)
    with pytest.raises(UsageError, match="a layer of type GRU; use cohort = 0"):
        laws.check(2)


@pytest.mark.parametrize(
    ("trap", "message"),
    [
        ("in place", "changes its inputs in place"),
        ("rand", "draws random numbers by itself"),
        ("dropout", "draws random numbers by itself.*nn.Dropout"),
        ("memory", "draws random numbers by itself, or remembers"),
        ("average", "its buffer body.scale changes in training"),
        ("over the batch", "depend on the other samples of its batch"),
        ("tuple", "returns a tuple; it must return one tensor of scores.*head="),
        ("softmax", "not the output of its layer 'out'.*head="),
        ("cooled", "not the output of its layer 'out'"),
        ("tied head", "shares its weights with another layer, or is registered a second time"),
        ("frozen head", "its head out is frozen"),
        ("float64", "is float64, and raffed trains float32"),
        ("momentum", "momentum=None"),
        ("exit", r"own_nets\.py:\d+: .*SystemExit: 0"),
    ],
)
def test_what_would_spoil_a_run_is_refused_with_the_remedy(trap: str, message: str) -> None:
    with pytest.raises(RaffedError, match=message) as caught:
        laws_of("Trap", ROWS, trap=trap).check(0)
    assert "\n" not in str(caught.value)


def test_a_branch_on_a_value_trains_alone_and_is_refused_in_a_stack() -> None:
    laws = laws_of("Trap", ROWS, trap="branch")
    laws.check_scores()
    with pytest.raises(UsageError, match=r"cannot be stacked .*use cohort = 0"):
        laws.check_stacks(4)


@pytest.mark.parametrize("trap", ["numpy", "python"])
def test_a_constructor_that_draws_elsewhere_is_refused(trap: str) -> None:
    nets = [build(f"{HOME}:Trap", (FEATURES,), CLASSES, 0, trap=trap) for _ in range(2)]
    with pytest.raises(UsageError, match="other weights from the same seed"):
        check_seeded(*nets, trap)


def test_frozen_parameters_are_no_part_of_the_model_and_keep_their_values_and_names() -> None:
    net = build(f"{HOME}:Trap", (FEATURES,), CLASSES, 3, trap="frozen")
    assert not any(name.startswith("body.inner.") for name, _ in net.named_parameters())
    assert {"body.inner.weight", "body.inner.bias"} <= net.constants
    own = plain_module(net)
    with forked(3):
        wanted = Trap(CLASSES, "frozen")
    assert list(own.state_dict()) == list(wanted.state_dict())
    assert torch.equal(own.state_dict()["inner.weight"], wanted.inner.weight)
    assert not dict(own.named_parameters())["inner.weight"].requires_grad


def test_tied_weights_stay_one_parameter() -> None:
    net = build(f"{HOME}:Trap", (FEATURES,), CLASSES, 0, trap="tied")
    assert [name for name, _ in net.named_parameters() if name.endswith(("other.weight", "twin.weight"))] == [
        "body.other.weight"
    ]
    own = plain_module(net)
    assert isinstance(own, Trap)
    assert own.twin.weight is own.other.weight


FIVE_IDS = ModelInputs((5,), "int64")
PADDING = 2


class Words(nn.Module):
    def __init__(self, **args: object) -> None:
        super().__init__()
        self.e, self.fc = nn.Embedding(12, 6, **args), nn.Linear(6, 3)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.e(x).mean(1))
        return scores


def test_an_embedding_that_changes_its_weights_in_a_forward_pass_is_refused() -> None:
    with pytest.raises(UsageError, match="its layer e has max_norm, which changes weights"):
        as_net(Words(max_norm=0.5), in_shape=FIVE_IDS.shape, dtype=FIVE_IDS.dtype)


class OwnPadding(Words):
    """Calls torch's function, which nothing can correct in a stack."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(F.embedding(x, self.e.weight, padding_idx=0).mean(1))
        return scores


def test_a_function_of_torch_that_forgets_the_padding_in_a_stack_is_refused_there() -> None:
    net = as_net(OwnPadding(), in_shape=FIVE_IDS.shape, dtype=FIVE_IDS.dtype)
    laws = Laws(net, "Mine", FIVE_IDS, 3)
    laws.check(0)
    with pytest.raises(UsageError, match=r"other gradients of body\.e\.weight when stacked; use cohort = 0"):
        laws.check(2)


def _texts() -> list[ClientData]:
    g = torch.Generator().manual_seed(1)
    found = []
    for n in (8, 10, 6, 11):
        x = torch.randint(0, 12, (n, 5), generator=g)
        x[:, 3:] = PADDING
        found.append(ClientData(x, x[:, 0] % 3, torch.bincount(x[:, 0] % 3, minlength=3)))
    return found


@pytest.mark.parametrize("stacked", [False, True])
def test_padding_gets_no_gradient_alone_and_in_a_stack(stacked: bool) -> None:
    """The row of the padding begins at 0 and stays there, as in plain torch, whose step is done here too."""
    local = Local(lr=0.1, momentum=0.0, weight_decay=0.0, batch_size=4, epochs=1)
    data = _texts()
    torch.manual_seed(0)
    net = as_net(Words(padding_idx=PADDING), in_shape=FIVE_IDS.shape, dtype=FIVE_IDS.dtype)
    own = Network(net, constants=net.constants, kernels=net.rewritable)
    tiny = TinyFederation(Method("Mine"), net=own, data=data, local=local, cohort=stacked)
    tiny.step((0, 1))
    assert not tiny.server.w["body.e.weight"][PADDING].any()
    means = torch.zeros(12, 6)
    for client, share in ((0, 8 / 18), (1, 10 / 18)):
        torch.manual_seed(0)
        module = Words(padding_idx=PADDING)
        weights, one = list(module.parameters()), data[client]
        stream = seeds.generator(0, "batches", 0, client, 0)
        for index in batch_stream(one.n, local.steps(one.n, None), local, stream):
            loss = F.cross_entropy(module(one.x[index]), one.y[index])
            for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.data -= 0.1 * slope
        means += share * module.e.weight.detach()
    torch.testing.assert_close(tiny.server.w["body.e.weight"], means, rtol=1e-5, atol=1e-6)


# Networks as libraries have them return an object with `logits`.


@dataclass
class Output:
    logits: Tensor


class Small(nn.Module):
    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.body, self.fc, self.plain = nn.Linear(4, 3), nn.Linear(3, 2), plain

    def forward(self, x: Tensor) -> Tensor | Output:
        scores = self.fc(self.body(x).relu())
        return scores if self.plain else Output(scores)


def test_an_output_with_logits_counts_as_its_logits() -> None:
    plain, within = Small(plain=True), Small(plain=False)
    within.load_state_dict(plain.state_dict())
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    one, other = (as_net(net, in_shape=(4,)) for net in (plain, within))
    for wanted, found in zip(one(x), other(x), strict=True):
        assert torch.equal(wanted, found)
    assert isinstance(other, OwnNet)
    assert {other.user_name(name) for name, _ in other.named_parameters()} == set(
        dict(Small(True).named_parameters())
    )
    assert torch.equal(other.user_module()(x).logits, one(x)[0])


ROW = re.compile(r"^\| (\w+) \|(?:[^|]*\|){3} (yes|no|not tried) \| (yes|no|not tried) \|", re.MULTILINE)


def test_torchvision_has_eighty_networks_and_the_page_has_a_row_for_each() -> None:
    assert len(torchvision_names()) == 80
    assert [name for name, _, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))] == list(torchvision_names())


@pytest.mark.slow
@pytest.mark.parametrize("name", torchvision_names())
def test_every_network_is_found_as_the_page_says(name: str) -> None:
    rows = {name: alone for name, alone, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert line_of(name).trains == (rows[name] != "no")


def test_stochastic_depth_draws_from_the_client_s_stream() -> None:
    net = build("torchvision:convnext_tiny", (3, 32, 32), 5, 0)
    left = [layer for layer in net.modules() if isinstance(layer, StochasticDepth)]
    assert all(layer.p == 0 for layer in left)  # those draw nothing
    assert sum(isinstance(layer, Dropout) for layer in net.modules()) == 18 - len(left)


@pytest.mark.parametrize("name", ["tests.models.own_nets:SmallNet", "mlp"])
def test_onnx_runtime_computes_the_scores_of_the_module(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    raffed.run(
        raffed.RunConfig(
            data=raffed.Data(split="iid:2", samples=200),
            federation=raffed.Federation(rounds=1),
            runtime=raffed.Runtime(execution="serial"),
            model=raffed.Model(name=name),
        ),
        tmp_path / "run",
    )
    raffed.export(tmp_path / "run", onnx=tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    model = raffed.load_model(tmp_path / "run")
    assert [one.name for one in session.get_inputs()] == ["inputs"]
    for batch in (1, 5):
        x = torch.rand(batch, 1, 8, 8, generator=torch.Generator().manual_seed(batch))
        found = torch.from_numpy(session.run(["scores"], {"inputs": x.numpy()})[0])
        with torch.no_grad():
            made = model(x)
        scores = made if isinstance(made, torch.Tensor) else made[0]
        assert found.shape == (batch, 10)
        assert torch.allclose(found, scores, rtol=1e-4, atol=1e-5)


NAME = "shufflenet_v2_x0_5"
Weights = dict[str, torch.Tensor]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Weights]:
    """cached(name) puts weights for 1,000 classes where torchvision would keep them, and returns them."""

    def put(name: str = NAME) -> Weights:
        weights: Weights = torchvision.models.get_model(name).state_dict()
        path = tmp_path / "weights.pth"
        torch.save(weights, path)
        made = path.rename(path.with_name(f"{NAME}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.pth"))
        monkeypatch.setattr(factories, "weights_file", lambda _: made)
        return weights

    return put


def built(**args: Value) -> Net:
    return build(f"torchvision:{NAME}", (3, 32, 32), 10, 0, **args)


def test_all_weights_but_the_head_s_are_the_file_s(cached: Callable[..., Weights]) -> None:
    stored, random = cached(), plain_module(built()).state_dict()
    found = plain_module(built(pretrained=True)).state_dict()
    for name, value in found.items():
        assert torch.equal(value, (random if name.startswith("fc.") else stored)[name]), name


def test_a_file_with_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = factories.weights_file(NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a file")
    with pytest.raises(UsageError, match="put the file back"):
        built(pretrained=True)
