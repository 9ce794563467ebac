"""Which methods belong to which table of the zoo, asked of the methods themselves."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from raffed import RunConfig
from raffed.config.portable import BitsTooLateError
from raffed.errors import UsageError
from raffed.methods import METHODS, build_method

if TYPE_CHECKING:
    from raffed import Method

REFERENCES = ("fedavg",)  # stand in the table of personal models too


def not_global(run: RunConfig) -> str:
    """Return why a method is not a row of a table of global models, or ""."""
    method = build_method(run.method, {})
    if not method.has_global:
        return "the server holds no whole model"
    if mixed := mixture_remark(method):
        return mixed
    twin = same_global_model(run.method)
    return f"its global model is {METHODS[twin].title}'s, bit for bit" if twin else does_not_fit(run)


def not_personal(run: RunConfig) -> str:
    """Return why a method is not a row of a table of personal models, or ""."""
    method = build_method(run.method, {})
    if run.method not in REFERENCES and not is_personal(method):
        return "its clients have no models of their own"
    refused = does_not_fit(run)
    if not refused and keeps_norms_alone(method) and not _has_norms(run):
        return "its clients keep nothing but BatchNorm, which this network does not have"
    return refused


def keeps_norms_alone(method: Method) -> bool:
    """Return whether all that a client keeps are BatchNorm's layers or statistics."""
    layers = method.split.personal in ("all", "body", "head", "base", "top")
    return method.split.buffers == "local" and not layers and method.personal is None


def _has_norms(run: RunConfig) -> bool:
    from raffed.runtime.setup import prepare_run
    from raffed.runtime.setup_model import make_network

    setup = prepare_run(run)
    return bool(list(make_network(setup.network, setup.data).initial.b.names))


def is_personal(method: Method) -> bool:
    """Return whether a client has a model of its own: by a slot, or because it keeps layers or statistics.

    An opening also gives it one, because a client is scored after what it makes of the download.
    """
    kept = method.split.personal != "none" or method.split.buffers == "local"
    return method.personal is not None or method.opening is not None or kept


@functools.cache
def same_global_model(name: str) -> str:
    """Return the method whose global model another one has, bit for bit, or "".

    A personal slot that gives the shared model no gradient never changes what is shared. So such a method has
    the global model of the method that is the same without that slot, if there is one.
    """
    from raffed import Personal

    method = build_method(name, {})
    personal = method.personal
    if personal is None or not (personal.apart or type(personal).loss is Personal.loss):
        return ""
    return next((other for other, shared in _shared().items() if shared == _nameless(method)), "")


@functools.cache
def _shared() -> Mapping[str, Method]:
    """Return the methods without a personal slot, without their names."""
    methods = {name: build_method(name, {}) for name in METHODS}
    return {name: _nameless(method) for name, method in methods.items() if method.personal is None}


def _nameless(method: Method) -> Method:
    return replace(method, name="", personal=None)


def mixture_remark(method: Method) -> str:
    """Return that a method's shared model never learns to classify by itself, or "" if it does."""
    alone = method.personal is None or method.personal.trains_alone
    return "" if alone else "its global model is trained only within a mixture with private models"


def global_measure(run: RunConfig) -> str:
    """Return how the number of a row of global models is read, if not as the others'; else ""."""
    method = build_method(run.method, {})
    if method.acts_last("global"):
        return "accuracy_last"
    return "accuracy_clean_mean10" if method.server.required_data().images else ""


def personal_measure(run: RunConfig) -> str:
    """Return how the number of a row of personal models is read, if not as the others'; else ""."""
    return "personal_last" if build_method(run.method, {}).acts_last("personal") else ""


def global_remark(run: RunConfig) -> str:
    """Return what a reader of a table of global models must know of a row, or ""."""
    said = {
        "accuracy_last": "it is scored after the last round alone, in its trials too, because its model is "
        "finished only then",
        "accuracy_clean_mean10": f"{server_remark(run)}; it is scored on the test images without these, "
        "FedAvg on all of them",
    }
    return said.get(global_measure(run), server_remark(run))


def personal_remark(run: RunConfig) -> str:
    """Return what a reader of a table of personal models must know of a row, or ""."""
    last = "it is scored after the last round alone, in its trials too, because its models are finished then"
    said = last if personal_measure(run) else "", server_remark(run)
    return "; ".join(remark for remark in said if remark)


def server_remark(run: RunConfig) -> str:
    """Return what a method's server has that the others' have not, as a reader must know it, or ""."""
    data = server_data(run)
    return f"its server has {data}, which no other method has" if data else ""


def server_data(run: RunConfig) -> str:
    """Return which data a method's server has that the others' have not, or ""."""
    needed = build_method(run.method, {}).server.required_data()
    texts = [
        f"{needed.images:,} test images without labels" if needed.images else "",
        f"{needed.labelled:,} labelled images of every class" if needed.labelled else "",
    ]
    return " and ".join(text for text in texts if text)


def does_not_fit(run: RunConfig) -> str:
    """Return why a method cannot run with this network and these data, or ""."""
    return _refused(json.dumps(run.as_dict()))


@functools.cache
def _refused(run: str) -> str:
    from raffed.runtime.setup import check_model, prepare_run

    try:
        setup = prepare_run(RunConfig.from_dict(json.loads(run)))
        check_model(setup.network, setup.data)
    except BitsTooLateError:  # another process can run it
        raise
    except UsageError as error:
        return " ".join(str(error).split())
    return ""
