"""What a user's module may do: it is right, or refused before any work in one line that says what to do."""

from __future__ import annotations

import pytest
import torch

from raffed.core.seeds import forked
from raffed.errors import RaffedError, UsageError
from raffed.models import build, build_for
from raffed.models.own.laws import Laws, check_seeded
from raffed.models.own.wrapping import ModelInputs
from raffed.runtime.initial_weights import plain_module
from tests.models.own_nets import CLASSES, FEATURES, LENGTH, Trap

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
