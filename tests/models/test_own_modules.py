"""What a user's module may do: it becomes raffed's network, or is refused before any work with the remedy."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raffed import as_net
from raffed.config.training import Local
from raffed.core import seeds
from raffed.core.context import ClientData
from raffed.core.method import Method
from raffed.core.seeds import forked
from raffed.core.training.network import Network
from raffed.core.training.sgd import batch_stream
from raffed.errors import RaffedError, UnknownNameError, UsageError
from raffed.models import build, build_for, is_own, model_name
from raffed.models.own.laws import Laws, check_seeded
from raffed.models.own.wrapping import ModelInputs
from raffed.own.user_code import UserCodeError
from raffed.runtime.initial_weights import plain_module, start_from
from raffed.testing.federation import TinyFederation
from tests.models.own_nets import CLASSES, FEATURES, LENGTH, SmallNet, Trap, chain

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


def test_a_wrapped_module_returns_the_scores_that_it_returned_before() -> None:
    x = torch.rand(4, 1, 8, 8)
    wanted = seeded().eval()(x)
    for net in (as_net(seeded(), "fc"), as_net(seeded(), in_shape=(1, 8, 8))):
        assert torch.equal(net.eval()(x)[0], wanted)


def test_names_begin_with_body_and_head_and_come_back_as_the_user_s() -> None:
    net = as_net(seeded(), "fc")
    assert all(name.startswith(("body.", "head.")) for name in net.state_dict())
    own = plain_module(net)
    assert type(own) is SmallNet
    assert list(own.state_dict()) == list(SmallNet(10).state_dict())
    SmallNet(10).load_state_dict(own.state_dict())
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(own.eval()(x), seeded().eval()(x))


def test_a_linear_layer_alone_is_a_network() -> None:
    net = as_net(nn.Linear(FEATURES, CLASSES), in_shape=(FEATURES,))
    x = torch.rand(2, FEATURES)
    scores, z = net(x)
    assert torch.equal(z, x)
    assert list(plain_module(net).state_dict()) == ["weight", "bias"]
    assert scores.shape == (2, CLASSES)


def test_a_module_with_a_child_named_projection_has_no_projection_before_its_head() -> None:
    layers = {"projection": nn.Linear(FEATURES, 8), "act": nn.Tanh(), "out": nn.Linear(8, CLASSES)}
    net = as_net(nn.Sequential(OrderedDict(layers)), "out")
    assert not any(name.startswith("body.projection.") for name, _ in net.named_parameters())
    own = ["projection.weight", "projection.bias", "out.weight", "out.bias"]
    assert list(plain_module(net).state_dict()) == own


def test_without_a_head_and_a_shape_as_net_asks_for_one() -> None:
    with pytest.raises(UsageError, match=r"give in_shape=.* or head="):
        as_net(Trap(CLASSES))


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", AFTER_THE_HEAD)
def test_what_is_computed_after_the_head_is_refused_for_any_weights(what: str, seed: int) -> None:
    # The bias begins at 0, and becomes another number in training: then a sum or a factor shows
    shape, rule = AFTER_THE_HEAD[what]
    with forked(seed):
        module = AfterHead(rule)
    nn.init.zeros_(module.out.bias)
    for head in (None, "out"):
        with pytest.raises(UsageError, match="not the output of its layer 'out'"):
            as_net(copy.deepcopy(module), head, in_shape=shape)


def test_scores_of_another_shape_with_the_head_s_values_are_its_output() -> None:
    net = as_net(AfterHead(lambda scores: scores.squeeze(1)), in_shape=(1, 4))
    assert net(torch.rand(3, 1, 4))[0].shape == (3, CLASSES)


def test_a_reference_is_built_with_its_own_arguments_and_the_seed_alone() -> None:
    nets = [build(f"{HOME}:SmallNet", (1, 8, 8), 10, seed, width=5) for seed in (1, 1, 2)]
    a, b, c = (net.state_dict() for net in nets)
    assert a["body.stem.weight"].shape == (5, 1, 3, 3)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["body.stem.weight"], c["body.stem.weight"])


def test_a_module_from_a_reference_has_the_weights_that_torch_s_seed_gives() -> None:
    found = plain_module(build(f"{HOME}:chain", (1, 8, 8), 10, 7)).state_dict()
    with forked(7):
        wanted = chain(10).state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (f"{HOME}:SmallNet", {"widht": 3}, "argument of .*'widht'.*width"),
        (f"{HOME}:Missing", {}, "has no 'Missing'"),
        (f"{HOME}:a_list", {}, "made a list; it must make an nn.Module"),
        (f"{HOME}:made", {}, "is a Linear; it must be a class or a function"),
        (f"{HOME}:SmallNet", {"head": 3}, "not the output of its layer '3'"),
        ("torchvision:resnet81", {}, "network of torchvision.*resnet18"),
        ("torchvision:resnet18", {"weights": "DEFAULT"}, "--init FILE"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(name: str, args: dict[str, str], message: str) -> None:
    with pytest.raises(RaffedError, match=message) as caught:
        build(name, (1, 8, 8), 10, 0, **args)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_the_user_s_own_code_is_reported_by_its_file_and_line() -> None:
    with pytest.raises(UserCodeError, match=r"own_nets\.py:\d+: .*NameError"):
        build(f"{HOME}:broken", (FEATURES,), CLASSES, 0)


def test_names_of_networks_have_one_spelling() -> None:
    assert model_name(" MLP ") == "mlp"
    assert model_name("torchvision:resnet18") == "torchvision:resnet18"
    assert model_name("./Net.py:SmallNet") == "./Net.py:SmallNet"
    with pytest.raises(UnknownNameError, match="lenet"):
        model_name("lenett")
    with pytest.raises(UsageError, match="is not a reference"):
        model_name("./net.py")
    assert not is_own("mlp")
    with pytest.raises(UsageError, match=r"resnet8: in_shape = .*a network of your own"):
        build("resnet8", (2, 3), CLASSES, 0)


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    net = as_net(seeded(), "fc")
    weights = SmallNet(10).state_dict()
    weights["extra"] = weights.pop("stem.weight")
    weights["fc.bias"] = torch.zeros(3)
    with pytest.raises(
        UsageError, match=r"missing stem.weight; unexpected extra; other shapes fc.bias 3 for 10"
    ):
        start_from(net, weights, "model.pt")


HOME = "tests.models.own_nets"
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
        ("table", "GroupNorm", ROWS),
        ("table", "BatchNorm", ROWS),
        ("Sentence", "bag", IDS),
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


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_train_alone_and_are_refused_in_a_stack(kind: str) -> None:
    laws = laws_of("Sentence", IDS, kind=kind)
    laws.check(0)
    with pytest.raises(UsageError, match=f"a layer of type {kind}; use cohort = 0"):
        laws.check(2)


@pytest.mark.parametrize(
    ("trap", "message"),
    [
        ("in place", "changes its inputs in place"),
        ("rand", "draws random numbers by itself"),
        ("dropout", "draws random numbers by itself.*nn.Dropout"),
        ("numpy in forward", "draws random numbers by itself, or remembers"),
        ("memory", "draws random numbers by itself, or remembers"),
        ("counter", "its buffer body.steps changes in training"),
        ("average", "its buffer body.scale changes in training"),
        ("over the batch", "depend on the other samples of its batch"),
        ("squeeze", "for a batch of one sample; it must return 1x3"),
        ("tuple", "returns a tuple; it must return one tensor of scores.*head="),
        ("softmax", "not the output of its layer 'out'.*head="),
        ("tied head", "shares its weights with another layer"),
        ("frozen head", "its head out is frozen"),
        ("float64", "is float64, and raffed trains float32"),
        ("half", "is bfloat16, and raffed trains float32"),
        ("double", "is float64, and raffed trains float32"),
        ("momentum", "momentum=None"),
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


def test_lazy_layers_get_their_weights_from_the_seed() -> None:
    a, b = (build(f"{HOME}:Trap", (FEATURES,), CLASSES, 5, trap="lazy").state_dict() for _ in range(2))
    assert a["body.inner.weight"].shape == (8, FEATURES)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_tied_weights_stay_one_parameter() -> None:
    net = build(f"{HOME}:Trap", (FEATURES,), CLASSES, 0, trap="tied")
    assert [name for name, _ in net.named_parameters() if name.endswith(("other.weight", "twin.weight"))] == [
        "body.other.weight"
    ]
    own = plain_module(net)
    assert isinstance(own, Trap)
    assert own.twin.weight is own.other.weight


def test_dropout_inside_attention_is_refused_before_any_work() -> None:
    with pytest.raises(UsageError, match=r"the dropout = 0\.1 inside MultiheadAttention"):
        laws_of("Sentence", IDS, kind="encoder")


FOUR, FIVE_IDS = ModelInputs((4,)), ModelInputs((5,), "int64")
PADDING = 2


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


class InAList(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([self.body, self.head])


class Cooled(Parts):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (2.0 if self.training else 1.0)


class Aided(Parts):
    def forward(self, x: Tensor) -> Any:
        scores = super().forward(x)
        return (scores, scores) if self.training else scores


class Words(nn.Module):
    def __init__(self, **args: object) -> None:
        super().__init__()
        self.e, self.fc = nn.Embedding(12, 6, **args), nn.Linear(6, 3)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.e(x).mean(1))
        return scores


class OwnPadding(Words):
    """Calls torch's function, which nothing can correct in a stack."""

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(F.embedding(x, self.e.weight, padding_idx=0).mean(1))
        return scores


@pytest.mark.parametrize(
    ("make", "inputs", "words"),
    [
        (InAList, FOUR, "its head head .* is registered a second time"),
        (Cooled, FOUR, "are not the output of its layer 'head'"),
        (Aided, FOUR, "returns a tuple"),
        (lambda: Words(max_norm=0.5), FIVE_IDS, "its layer e has max_norm, which changes weights"),
        (lambda: Words(sparse=True), FIVE_IDS, "its layer e has max_norm, .* or sparse gradients"),
    ],
)
def test_a_false_module_is_refused(make: Callable[[], nn.Module], inputs: ModelInputs, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        as_net(make(), in_shape=inputs.shape, dtype=inputs.dtype)


def test_the_look_at_the_training_mode_changes_no_statistics_and_no_mode() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    net = as_net(module, in_shape=(4,))
    norm = net.body[1]  # type: ignore[index]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert not norm.running_mean.any()
    assert not norm.training


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


def test_a_function_of_torch_that_forgets_the_padding_in_a_stack_is_refused_there() -> None:
    net = as_net(OwnPadding(), in_shape=FIVE_IDS.shape, dtype=FIVE_IDS.dtype)
    laws = Laws(net, "Mine", FIVE_IDS, 3)
    laws.check(0)
    with pytest.raises(UsageError, match=r"other gradients of body\.e\.weight when stacked; use cohort = 0"):
        laws.check(2)
