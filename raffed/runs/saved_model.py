"""The network of a run with its final weights: `raffed.load_model` and `raffed export`."""

from __future__ import annotations

import importlib.util
import io
import json
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from raffed.config.run import RunConfig
from raffed.core import seeds
from raffed.core.messages import Addressed, ServerState
from raffed.core.method import Method
from raffed.core.params import State
from raffed.core.round import between_rounds, evaluated_broadcast
from raffed.core.training.session import Participant, TrainingSession, one_by_one
from raffed.errors import RunFolderError, UsageError, check_new_file, writing
from raffed.models.net import Net
from raffed.models.own.wrapping import ModelInputs
from raffed.results.files import replacing
from raffed.results.runfile import RunContents, read_run
from raffed.results.storage import fetched
from raffed.runs.checkpoint import BEST, CLIENT_STATES, checkpoints
from raffed.runs.code_record import check_code
from raffed.runs.folder import FINAL, run_config
from raffed.runs.integrity import check_file
from raffed.runtime.federated_data import ClientDataCache
from raffed.runtime.initial_weights import plain_module, put_state, read_initial
from raffed.runtime.record_files import ClientStateStore, load_server, restore_client_states, versions_in
from raffed.runtime.run_method import method_of, network_of
from raffed.runtime.setup import prepare_run
from raffed.runtime.setup_model import make_network, make_spec
from raffed.scratch import scratch_folder


def load_model(
    run: Path | str, client: int | None = None, best: bool = False, accept_changed_code: bool = False
) -> nn.Module:
    """Return the network of a finished run with its final weights, or with its best ones.

    A module of one's own comes back as its own class, with its own names of parameters. A network of raffed's
    returns (scores [B, C], features z [B, D]).

    Args:
        run: The run's folder or URL.
        client: Number of a client, for its personalised model as it stands after the last round. It needs the
            run's data. None for the global model.
        best: Whether the weights are those of the round with the best score on the clients' validation parts.
        accept_changed_code: Whether own code of the run, such as its network, may have changed since, or may
            have come with the folder. It is executed.

    Returns:
        The module in evaluation mode, on the CPU.

    Raises:
        RunFolderError: The folder does not hold a finished run, or a file of it is damaged.
        UsageError: The method has no such model.

    Example:
        >>> model = raffed.load_model("runs/a")  # doctest: +SKIP
    """
    with fetched(run, whole=True) as folder:
        return plain_module(_net(folder, client, best, accept_changed_code)).eval()


def export(
    run: Path | str,
    out: Path | str | None = None,
    onnx: Path | str | None = None,
    client: int | None = None,
    best: bool = False,
    accept_changed_code: bool = False,
) -> list[Path]:
    """Write the final weights of a run, or its best ones, into files.

    Args:
        run: The run's folder or URL.
        out: A new file for the state_dict, which `torch.load(FILE, weights_only=True)` reads, or a table of
            safetensors if its name ends in .safetensors. Its names are those of the user's own class.
        onnx: A new file for the whole network in the ONNX format. It needs the package onnx.
        client: As in `load_model`.
        best: As in `load_model`.
        accept_changed_code: As in `load_model`.

    Returns:
        The files that were written. Beside each one lies a JSON file of the same name with what new data need
        to become inputs (`raffed.runs.record.SavedInputs`), unless the run is of an earlier
        version.

    Raises:
        UsageError: A file exists already, or the package is missing.
    """
    options = {"--out": out, "--onnx": onnx}
    places = {Path(place): option for option, place in options.items() if place is not None}
    if not places:
        raise UsageError("nothing to write: give --out model.pt, --onnx model.onnx, or both")
    if out is not None and onnx is not None and len(places) == 1:
        raise UsageError(f"--out and --onnx are the same file, {out}; give two names")
    beside = {_beside(place): option for place, option in places.items()}
    for place, option in {**places, **beside}.items():
        check_new_file(place, option)
    if onnx is not None and importlib.util.find_spec("onnx") is None:
        raise UsageError("--onnx needs the package onnx: pip install 'raffed[onnx]'")
    with fetched(run, whole=True) as folder:
        net = _net(folder, client, best, accept_changed_code)
        about = read_run(folder)
        inputs = _inputs(about)
    module = plain_module(net).eval()
    if out is not None:
        with writing(Path(out)), replacing(Path(out)) as part:
            part.write_bytes(_saved(module, Path(out).suffix))
    if onnx is not None:
        with writing(Path(onnx), "--onnx"), replacing(Path(onnx)) as part:
            _write_onnx(module, inputs, part)
    if "dataset" not in about:
        return list(places)
    held = {"run_id": about["run_id"], "inputs": about["inputs"], "dataset": about["dataset"]}
    for place in beside:
        with replacing(place) as part:
            part.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [*places, *beside]


def _beside(place: Path) -> Path:
    return place.with_suffix(".inputs.json" if place.suffix == ".json" else ".json")


def _saved(module: nn.Module, suffix: str) -> bytes:
    """Return a module's weights as safetensors, if the suffix says so, or as torch.save writes them.

    To a full disk torch.save would raise a RuntimeError.
    """
    rows, stream = torch.contiguous_format, io.BytesIO()
    weights = {name: value.detach().clone(memory_format=rows) for name, value in module.state_dict().items()}
    if suffix == ".safetensors":
        return save(weights)
    torch.save(weights, stream)
    return stream.getvalue()


def _net(folder: Path, client: int | None, best: bool, accept_changed_code: bool) -> Net:
    about, config = read_run(folder), run_config(folder)
    if about["state"] != "finished":
        raise RunFolderError(f"{folder}: the run is {about['state']}; `raffed resume {folder}` finishes it")
    check_code(folder, about, config, accept_changed_code)
    if best:
        _check_best(folder, about, client)
    name, method = BEST if best else FINAL, method_of(config)
    check_file(folder, name, about["files"], "put it back")
    net = _initial_net(about, config)
    server = load_server(folder / name, method)
    model = _global(config, method, server) if client is None else _personal(folder, config, server, client)
    put_state(net, model)
    return net


def _check_best(folder: Path, about: RunContents, client: int | None) -> None:
    if client is not None:
        raise UsageError(
            "the clients' models are kept of the last round only; leave best (--best) or client out"
        )
    if "best" not in about:
        raise UsageError(
            f"{folder}: no best model was kept; that needs a validation part (--validation 0.1), because "
            "test data may not choose it, and a method with a global model"
        )


def _inputs(about: RunContents) -> ModelInputs:
    """Return what the inputs looked like."""
    return ModelInputs(tuple(about["inputs"]["shape"]), about["inputs"]["dtype"])


def _initial_net(about: RunContents, config: RunConfig) -> Net:
    """Return the network with the weights that the run began with."""
    inputs, classes = _inputs(about), len(about["classes"]["samples"])
    network = network_of(config, initial=read_initial(config.model))
    return network.build(inputs.shape, classes, inputs.dtype, seed=seeds.seed(config.seed, "weights"))


def _global(config: RunConfig, method: Method, server: ServerState) -> State:
    if not method.has_global:
        raise UsageError(
            f"{config.method} has no global model: each client has one of its own; give client= (--client K)"
        )
    broadcast = evaluated_broadcast(method, server)
    return State(broadcast.w, broadcast.b)


def _personal(folder: Path, config: RunConfig, server: ServerState, client: int) -> State:
    """Return a client's personalised model between rounds, as the survey after the last round scores it."""
    config = replace(config, runtime=replace(config.runtime, execution="serial", address=None))
    setup = prepare_run(config, recorded=read_run(folder))
    method, clients = setup.method, setup.partition.num_clients
    if not 0 <= client < clients:
        raise UsageError(f"client = {client}; clients are 0 to {clients - 1}")
    if method.personal is not None and method.personal.predicts:
        raise UsageError(
            f"{config.method}: the scores of a client come from more than one model; none to load"
        )
    is_shared = method.split.personal == "none" and method.split.buffers == "average"
    alike = not any(isinstance(slot, Addressed) for slot in server.slots.values())
    if method.personal is None and method.opening is None and is_shared and alike:
        raise UsageError(f"{config.method} has no personal models; leave client= (--client) out")
    net = make_network(setup.network, setup.data)
    spec = make_spec(setup.data, net.feature_dim, net.norm_names)
    session = TrainingSession(net, config.local, config.seed, spec, None, one_by_one)
    data = ClientDataCache(setup.data, net, net.device, held_out=method.needs_held_out)
    data.enter(setup.data.stage(server.round - 1))
    with scratch_folder() as scratch:
        store = scratch / "states"
        restore_client_states(checkpoints(folder)[-1] / CLIENT_STATES, store)
        versions = versions_in(store, client)
        kept = ClientStateStore(store, method.keeps_state)
        state = kept.get(client, max(versions, default=0))
        participant = Participant(client, state, data.client(client))
        models = between_rounds(method, server.broadcast(), participant, session)
    return models.personal_state(method)


def _write_onnx(module: nn.Module, inputs: ModelInputs, file: Path) -> None:
    names = ["scores", "features"] if isinstance(module, Net) else ["scores"]
    with warnings.catch_warnings():  # torch's newer exporter needs a further package
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            module,
            (inputs.batch(2),),
            str(file),
            input_names=["inputs"],
            output_names=names,
            dynamic_axes={name: {0: "batch"} for name in ("inputs", *names)},
            dynamo=False,
        )
