"""An operation costs little to call, because torch need not bind its arguments. So nothing may need it."""

from __future__ import annotations

import inspect

import pytest
import torch

import raffed.core.kernels.convolution
import raffed.core.kernels.maxpool  # noqa: F401 (it declares operations)
from raffed.core.kernels.autograd import Operation

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
