"""Whether the compiled kernel can compute a run's convolutions, and whether it computes any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raffed.config.run import RunConfig
from raffed.errors import UsageError
from raffed.runtime.machine import KERNELS, kernels_enabled

if TYPE_CHECKING:
    from raffed.models.net import Net

COMPILED: Final = "compiled"


def check_kernel(config: RunConfig) -> None:
    """Check that this process has the kernel that a run asks for.

    Raises:
        UsageError: It has not.
    """
    if config.numerics.convolutions != COMPILED:
        return
    from raffed.core.kernels import convolution

    asked = "numerics.convolutions = 'compiled'"
    if not convolution.built:
        raise UsageError(
            f"{asked}: this machine does not have raffed's kernel, because raffed was installed without a C "
            "compiler or the processor has no AVX2 and FMA; install a C compiler and then raffed again, or "
            "use 'torch'"
        )
    if not kernels_enabled():
        raise UsageError(f"{asked}, but {KERNELS} = 'off' forbids it; unset {KERNELS}, or use 'torch'")


def check_use(net: Net, name: str) -> None:
    """Check that the kernel computes a layer of a network.

    Raises:
        UsageError: It computes none, so the setting would have no effect.
    """
    if not computes(net):
        raise UsageError(
            f"numerics.convolutions = 'compiled' has no effect on {name}: it computes convolutions of stride "
            "1 with a multiple of 8 outputs and at most 262,144 weights, in networks of raffed's own or in "
            "an nn.Sequential; use 'torch', or another network (--model)"
        )


def computes(net: Net) -> bool:
    """Return whether the kernel computes a layer of a network. The network is changed."""
    from raffed.core.kernels import optimise
    from raffed.core.kernels.convolution import CompiledConv2d

    if not net.rewritable:
        return False
    optimise(net, convolutions=True)
    return any(isinstance(layer, CompiledConv2d) for layer in net.modules())


def could_be_compiled(config: RunConfig, shape: tuple[int, ...], classes: int, dtype: str) -> bool:
    """Return whether a run whose convolutions are torch's could have compiled ones, in this process.

    Args:
        config: The run's configuration.
        shape: Shape of one prepared input.
        classes: Number of classes C.
        dtype: Type of the prepared inputs, "float32" or "int64".
    """
    from raffed.core.kernels import convolution
    from raffed.models import build_for
    from raffed.runtime.run_network import network_args

    on_cpu = config.numerics.precision == "fp32" and not config.runtime.gpu_fraction
    if not (on_cpu and convolution.built and kernels_enabled()):
        return False
    return computes(build_for(config.model.name, network_args(config), shape, classes, 0, dtype))


__all__ = ["COMPILED", "check_kernel", "check_use", "could_be_compiled"]
