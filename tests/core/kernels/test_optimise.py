"""One function puts the faster layers into a network, and one switch leaves all of them out. An operation
costs little to call, because torch need not bind its arguments. So nothing may need it.
"""

from __future__ import annotations

import copy
import inspect

import pytest
import torch

import raffed.core.kernels.convolution
import raffed.core.kernels.maxpool  # noqa: F401 (it declares operations)
from raffed.core.kernels import optimise
from raffed.core.kernels.autograd import Operation
from raffed.core.training.network import Network
from raffed.models import MODELS, build

SHAPES = {"lenet": (1, 28, 28), "mlpnet": (1, 28, 28)}


@pytest.mark.parametrize("name", SHAPES)
def test_without_kernels_every_layer_is_torchs(name: str) -> None:
    plain, replaced = build(name, SHAPES[name], 10, 0), build(name, SHAPES[name], 10, 0)
    before = [type(layer) for layer in plain.modules()]
    net = Network(plain, onednn=True, kernels=False)
    assert net.functional.chain is None
    assert [type(layer) for layer in plain.modules()] == before
    assert (optimise(replaced, onednn=True) is not None) == (name == "mlpnet")
    assert [type(layer) for layer in replaced.modules()] != before


NETWORKS = {
    "lenet": {},
    "simplecnn": {},
    "tfcnn": {},
    "vgg11_bn": {},
    "cnn_pfllib": {},
    "cnn_mcmahan": {"padding": "pools"},
    "mlpnet": {},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_replaced_layers_compute_what_plain_ones_do_with_the_same_parameters(name: str) -> None:
    shape = MODELS[name].in_shapes[0]
    module = build(name, shape, 10, 0, **NETWORKS[name])
    replaced, before = copy.deepcopy(module).eval(), list(module.state_dict())
    parameters = dict(replaced.named_parameters())
    optimise(replaced)
    assert list(replaced.state_dict()) == before
    assert all(parameters[key] is one for key, one in replaced.named_parameters())
    assert not any(layer.training for layer in replaced.modules() if list(layer.parameters()))
    kinds = [type(layer) for layer in replaced.modules()]
    optimise(replaced)
    assert [type(layer) for layer in replaced.modules()] == kinds  # nothing is left to do
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    ours, plain = Network(copy.deepcopy(module)), Network(module, kernels=False)
    for mine, theirs in zip(ours.apply(ours.initial, x), plain.apply(plain.initial, x), strict=True):
        torch.testing.assert_close(mine, theirs)


ALL = Operation.__subclasses__()


@pytest.mark.parametrize("operation", ALL, ids=lambda one: one.__name__)
def test_no_argument_of_an_operation_has_a_default_or_needs_its_name(operation: type[Operation]) -> None:
    """A default would be missing among the inputs of `setup_context`."""
    code = operation.forward.__code__
    assert code.co_argcount
    assert not code.co_kwonlyargcount
    assert not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    assert not operation.forward.__defaults__


@pytest.mark.parametrize("operation", ALL, ids=lambda one: one.__name__)
def test_a_call_with_too_few_arguments_is_refused(operation: type[Operation]) -> None:
    with pytest.raises(TypeError, match=r"missing .* required positional argument"):
        operation.of(torch.ones(1, 8, 4, 4))
