"""Which names of a configuration stand for the user's own code, and that code, ready to travel."""

from __future__ import annotations

from raffed.config.run import RunConfig
from raffed.config.selection import SELECTIONS
from raffed.core.measures.own_metric import metric_function, names_in
from raffed.core.training.own_loss import GROUP as LOSS_GROUP
from raffed.methods import METHODS
from raffed.methods.own import GROUP
from raffed.models.catalogue import GROUP as MODEL_GROUP
from raffed.models.catalogue import MODELS, TORCHVISION
from raffed.own.carried import RunCode, packed
from raffed.own.located import is_reference
from raffed.own.names import reference_of


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
    for one in names_in(config.federation.metrics):
        named[f"metric {one}"] = metric_function(one).reference
    return {role: reference for role, reference in named.items() if reference is not None}


def _model(name: str) -> str | None:
    return None if name.startswith(TORCHVISION) else reference_of(name, MODEL_GROUP, MODELS)


def code_of(config: RunConfig) -> RunCode:
    """Return the user's own code that a run needs.

    Raises:
        UsageError: It cannot be found, or has no source.
    """
    return packed(references_in(config))
