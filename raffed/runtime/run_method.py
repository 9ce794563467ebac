"""The method of a run, with the mean that the run asks for; its network's arguments; its own code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raffed.config.aggregation import CompressionRule
from raffed.config.federation import SELECTIONS, Federation
from raffed.config.run import RunConfig
from raffed.config.sections import Model, Numerics, Privacy
from raffed.config.validation import Value
from raffed.core.own_functions import LOSS_GROUP, criterion_of, metric_function, names_in
from raffed.errors import UsageError
from raffed.methods import METHODS, build_method
from raffed.methods.authors import MODEL as AUTHORS
from raffed.methods.own import GROUP
from raffed.models import MODELS, build_for, common_args, is_own
from raffed.models.own import GROUP as MODEL_GROUP
from raffed.models.own import TORCHVISION
from raffed.own.carried import RunCode, packed
from raffed.own.located import is_reference
from raffed.own.names import reference_of

if TYPE_CHECKING:
    from raffed.core.method import Method
    from raffed.core.parts import Part
    from raffed.models.net import Net
    from raffed.runtime.initial_weights import Arrays

# Which names of a configuration stand for the user's own code, and that code, ready to travel.


def references_in(config: RunConfig) -> dict[str, str]:
    """Return role, such as "method" → reference, for the names that stand for code outside raffed.

    Code that makes data is not among them: a run knows its data by the hash of the arrays.
    """
    from raffed.data.splits import own_reference  # imported late because it loads NumPy

    named = {
        "method": reference_of(config.method, GROUP, METHODS),
        "model": _model(config.model.name),
        "split": own_reference(config.data.split),
        "selection": reference_of(config.federation.selection, "raffed.selections", SELECTIONS),
        "loss": reference_of(config.loss, LOSS_GROUP, ()),
        "schedule": config.local.schedule if is_reference(config.local.schedule) else None,
    }
    for metric in names_in(config.federation.metrics):
        named[f"metric {metric}"] = metric_function(metric).reference
    return {role: reference for role, reference in named.items() if reference is not None}


def _model(name: str) -> str | None:
    return None if name.startswith((TORCHVISION, AUTHORS)) else reference_of(name, MODEL_GROUP, MODELS)


def code_of(config: RunConfig) -> RunCode:
    """Return the user's own code that a run needs.

    Raises:
        UsageError: It cannot be found, or has no source.
    """
    return packed(references_in(config))


def method_of(config: RunConfig) -> Method:
    """Return the run's method, with the loss, mean, kept optimiser and compression that the run asks for.

    Raises:
        UsageError: The method does not admit them.
    """
    from raffed.core.training.session import with_optimizer

    method, federation = build_method(config.method, config.args), config.federation
    if config.loss:
        method = method.with_loss(criterion_of(config.loss, config.loss_args))
    selection = federation.rule()
    weighting = federation.weighting or (selection is not None and selection.weighting)
    if weighting or federation.mean_rule() is not None:
        method = with_mean(method, federation)
    if config.local.keep_optimizer:
        method = with_optimizer(method, config.local)
    rule = federation.compression_rule()
    if rule is None or rule.changes_nothing:
        return method
    return with_compression(
        method, rule, f"federation.compression = {federation.compression!r}", config.privacy
    )


def with_mean(method: Method, federation: Federation) -> Method:
    """Return a method with the mean that a run asks for.

    Args:
        method: The method as its factory makes it.
        federation: The settings of the run.

    Raises:
        UsageError: The method does not admit it, or two settings contradict each other.
    """
    rule = federation.mean_rule()
    if rule is not None and method.why_no_robust_mean:
        raise UsageError(
            f"federation.mean = {federation.mean!r}: {method.name} does not admit it, because "
            f"{method.why_no_robust_mean}; leave it out, or use another method"
        )
    by, asked = _weighting(federation, method.mean.by)
    if by != method.mean.by and method.mean.fixed:
        raise UsageError(f"{asked}: {method.name} requires the weights {method.mean.by!r}; leave it out")
    if by == method.mean.by and rule is None:
        return method
    mean = dataclasses.replace(method.mean, by="clients" if by == "clients" else "samples", rule=rule)
    return dataclasses.replace(method, mean=mean)


def with_compression(method: Method, rule: CompressionRule, asked: str, privacy: Privacy) -> Method:
    """Return a method whose clients compress what they upload.

    Args:
        method: The method.
        rule: The compression.
        asked: The setting that asks for it, for messages.
        privacy: The privacy of the run.

    Raises:
        UsageError: The method or the run's privacy does not admit it.
    """
    from raffed.core.ingredients import Compression, CompressionWithFeedback

    against = ""
    if method.split.personal == "all":
        against = f"the clients of {method.name} upload no weights"
    elif rule.feedback and method.opening is not None and method.hooks["shares"]:
        against = f"with feedback=true {method.name} could add to one model what was left out of another"
    elif privacy.masks:
        against = "a masked upload has a random number in every place, so none can be left out or shortened"
    elif privacy.noise and privacy.noise_at == "client":
        against = "noise of the clients is added to every number, so none can be left out or shortened"
    if against:
        raise UsageError(f"{asked}: {against}; leave it out")
    kind = CompressionWithFeedback if rule.feedback else Compression
    return dataclasses.replace(method, compression=kind(rule))


def _weighting(federation: Federation, usual: str) -> tuple[str, str]:
    """Return the weights of the mean, and the setting that asks for them as messages name it."""
    selection, rule = federation.rule(), federation.mean_rule()
    by, asked = federation.weighting, f"federation.weighting = {federation.weighting!r}"
    if rule is not None and not rule.weighted:
        if by == "samples":
            raise UsageError(
                f"{asked} has no effect with federation.mean = {federation.mean!r}, which has no weights; "
                "leave it out"
            )
        return "clients", asked
    if not by and selection is not None and selection.weighting:
        return selection.weighting, f"federation.selection = {federation.selection!r} has uniform weights"
    return by or usual, asked


# The network of a run: what the run gives, and what its method requires.


@dataclass(frozen=True)
class NetworkRequest:
    """The network that a run asks for, with the arguments that its method requires.

    Attributes:
        model: The section `model` of the run.
        args: The arguments with which it is built.
        numerics: The section `numerics` of the run.
        seed: The run's seed, from which its weights are drawn.
        method: Name of the method.
        required: (argument, value) of what the method requires.
        parts: The parts of the network that the method's passes train.
        initial: The weights of `model.init`, or None.
    """

    model: Model
    args: Mapping[str, Value]
    numerics: Numerics
    seed: int
    method: str
    required: tuple[tuple[str, Value], ...]
    parts: tuple[Part, ...]
    initial: Arrays | None = None

    def build(
        self, shape: tuple[int, ...], classes: int, dtype: str, *, seed: int = 0, quick: bool = False
    ) -> Net:
        """Return the network with the weights from which it starts. Imports torch.

        Args:
            shape: Shape of one prepared input.
            classes: Number of classes C.
            dtype: Type of the prepared inputs, "float32" or "int64".
            seed: The seed of its weights.
            quick: Whether weights that take long to draw may be others (`quicker`).
        """
        from raffed.models.last_layers import quicker
        from raffed.runtime.initial_weights import begin_from

        args = quicker(dict(self.args)) if quick else dict(self.args)
        net = build_for(self.model.name, args, shape, classes, seed, dtype)
        if self.initial is not None:
            begin_from(net, self.initial, self.model.init, "head_init" in dict(self.required))
        return net


def network_of(
    config: RunConfig, method: Method | None = None, initial: Arrays | None = None
) -> NetworkRequest:
    """Return the network that a run asks for.

    Args:
        config: The run's configuration.
        method: The run's method, if it is made already.
        initial: The weights of `model.init`, if they are read already.

    Raises:
        UsageError: The run gives another value than the method requires, or the method requires something
            that this network cannot have.
    """
    used, model = method_of(config) if method is None else method, config.model
    wanted = dict(used.network)
    if wanted:
        _check_reserved(used.name, model.name, wanted)
    for name, value in wanted.items():
        given = model.args.get(name, value)
        if given != value:
            raise UsageError(
                f"{used.name} requires a network with {name} = {_shown(value)}, and model.args has {name} = "
                f"{_shown(given)}; leave it out (--model-arg)"
            )
    parts = tuple(pass_.part for pass_ in used.passes)
    args = {**model.args, **wanted}
    return NetworkRequest(model, args, config.numerics, config.seed, used.name, used.network, parts, initial)


def network_line(network: NetworkRequest) -> str:
    """Return one line about what the method requires of the network; empty if it requires nothing."""
    if not network.required:
        return ""
    needed = ", ".join(f"{name} = {_shown(value)}" for name, value in network.required)
    kept = f"; a head in {network.model.init} without such rows is left out" if network.initial else ""
    return f"{network.method} builds the network with {needed}{kept if 'head_init' in needed else ''}"


def _check_reserved(title: str, model: str, wanted: dict[str, Value]) -> None:
    """Refuse a network of one's own that uses the name of a required argument for something else."""

    taken = sorted(set(wanted) - common_args(model)) if is_own(model) else []
    if taken:
        raise UsageError(
            f"{title} requires raffed's argument {taken[0]} of the network, but {model} has an argument of "
            "this name itself; rename that one"
        )


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
