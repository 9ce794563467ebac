"""The attacker sees what the method's Wires carry, and nothing else (docs/papers/mpfedcon.md §5)."""

from __future__ import annotations

import pickle

import pytest
import torch
from raffed.reproductions.studies.leakage import victim

from raffed.attacks.protocol import Observed, observed
from raffed.core.training.network import Network
from raffed.errors import UsageError
from raffed.methods import build_method
from raffed.methods.common import ClassSums
from tests.tiny import same_bits

SHAPE = (3, 12, 12)
X = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
ENCODER = {f"body.encoder.conv{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias")}
HEAD = {"head.weight", "head.bias"}
ONE_STEP = {
    "fedavg": {},
    "fedper": {},
    "fedrep": {"body_epochs": 1.0, "head_epochs": 0.0},
    "mpfedcon": {"head_epochs": 0.0},
}


def seen(method: str, layers: int = 1, lr: float = 0.1, **args: float) -> tuple[Observed, Network]:
    net = Network(victim(SHAPE, 10, 0, layers))
    return observed(build_method(method, {**ONE_STEP.get(method, {}), **args}), net, X, 4, lr=lr), net


def true_gradient(layers: int = 1) -> dict[str, torch.Tensor]:
    net = victim(SHAPE, 10, 0, layers)
    loss = torch.nn.functional.cross_entropy(net(X[None])[0], torch.tensor([4]))
    return dict(
        zip(dict(net.named_parameters()), torch.autograd.grad(loss, list(net.parameters())), strict=True)
    )


@pytest.mark.parametrize("method", ONE_STEP)
@pytest.mark.parametrize("layers", [1, 3])
def test_download_minus_upload_is_the_gradient_of_what_is_sent_alone(method: str, layers: int) -> None:
    found, truth = seen(method, layers)[0].gradient(), true_gradient(layers)
    chain = {name for name in truth if name.startswith("body.projection.")}
    hidden = {"fedavg": set(), "mpfedcon": HEAD | chain}.get(method, HEAD)
    assert set(found.names) == set(truth) - hidden
    assert len(found.names) >= len(ENCODER)
    for name in found.names:
        torch.testing.assert_close(found[name], truth[name], rtol=1e-3, atol=2e-6)


def test_nothing_of_the_client_is_in_what_was_observed() -> None:
    """What was not sent stands nowhere in the two records, not even behind a view of another tensor."""
    found, net = seen("mpfedcon")
    raw = pickle.dumps((found.broadcast, found.upload))
    assert found.broadcast.w["body.encoder.conv1.weight"].numpy().tobytes() in raw, "it is looked for rightly"
    kept = [net.initial.w[name] for name in net.initial.w.names if name not in ENCODER]
    for secret in (X, *kept, *(net.leaves("all")[name].detach() for name in HEAD)):
        assert secret.numpy().tobytes() not in raw
    assert set(found.upload.w.names) == set(found.broadcast.w.names) == ENCODER
    assert len(raw) < 3 * 4 * found.upload.w.layout.size


def test_mpfedcon_sends_the_representation_of_a_single_image_under_its_label() -> None:
    """A leak beside the gradient: with one layer of head the centre is the uploaded encoder's output."""
    found, net = seen("mpfedcon")
    sums = next(iter(found.upload.slots.values()))
    assert isinstance(sums, ClassSums)
    assert sums.count.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    trained = net.initial.replace(w=net.initial.w.joined(found.upload.w, net.initial.w.names))
    torch.testing.assert_close(sums.total[4], net.apply(trained, X[None])[1][0], rtol=1e-5, atol=1e-6)


def test_a_method_whose_difference_is_no_gradient_is_refused() -> None:
    with pytest.raises(UsageError, match="needs exactly one step"):
        seen("fedrep", body_epochs=2.0)
    with pytest.raises(UsageError, match="needs exactly one step"):
        seen("pfedme")


def test_noise_of_size_0_is_fedavgs_upload_bit_for_bit_and_other_noise_is_in_the_gradient() -> None:
    """11: the noise defence with v = 0 reproduces DLG bitwise, from the same starts."""
    assert same_bits(seen("noisygrad", size=0.0)[0].upload, seen("fedavg")[0].upload)
    gap = seen("noisygrad", size=0.01)[0].gradient() - seen("fedavg")[0].gradient()
    flat = torch.cat([t.flatten() for t in gap.tensors.values()]).double()
    assert float(flat.var()) == pytest.approx(0.01, rel=0.1)
