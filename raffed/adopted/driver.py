"""Execute an author's main file as it is, in the author's interpreter, and step its loop over rounds.

This file is a program. It imports nothing of raffed and runs on Python 3.8 with torch and NumPy. It reads an
order, then commands, as lines of JSON on its standard input, and writes events as lines of JSON to its
standard output. What the author's code prints goes to standard error.

Three things are watched, and no file is edited: the `train` of the server's class, in which `range` becomes a
generator for the loop over rounds alone; and the server's functions that test, whose answers are passed on.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import platform
import random
import runpy
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

# What a clock says is no state, and the number of rounds is an order
UNCOUNTED = {"Budget", "time", "train_time_cost", "send_time_cost", "train_time", "global_rounds"}
FOLDERS_OF_DATA = {"dataset", "Data"}
NO_STATE = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
CAN_BE_MADE_ANEW = (*NO_STATE, io.IOBase, type(threading.Lock()), type(threading.RLock()))


class RefusedError(Exception):
    """The code cannot be stepped, or cannot be resumed."""


def generators() -> Any:
    """Return the states of all generators of random numbers."""
    cuda = torch.cuda.get_rng_state_all()  # empty without a GPU
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda  # noqa: NPY002


def set_generators(states: Any) -> None:
    """Set all generators of random numbers."""
    python, numpy, cpu, cuda = states
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(cpu)
    torch.cuda.set_rng_state_all(cuda)


def written(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the files that the engine wrote below a folder: path → file, in the order of their paths."""
    every = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {
        name.as_posix(): path
        for name, path in every.items()
        if path.suffix not in (".py", ".pyc") and not FOLDERS_OF_DATA & {*name.parts}
    }


def lies_in_files(value: object) -> bool:
    """Return whether an object's arrays are mapped from files, as the data are that a new process reads."""
    parts = getattr(value, "__dict__", {}).values()
    return any(isinstance(part, np.memmap) for part in parts)


def set_locals(frame: Any, values: Any) -> None:
    """Set local variables of a function that is being executed."""
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):  # before, f_locals is a copy
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def digest(server: Any, root: pathlib.Path) -> str:
    """Return the SHA-256 of everything that a server holds, of the generators, and of the files written.

    Every tensor, array, number and text reachable from the server counts, and so does what is shared. Names
    with a slash are left out, because engines put the time into the names of folders.
    """
    total = hashlib.sha256()
    met: dict[int, int] = {}  # id of an object → its number
    kept: list[object] = []  # so that no other object gets its id

    def put(*parts: object) -> None:
        for part in parts:
            total.update(part if isinstance(part, bytes) else repr(part).encode())

    def walk(value: Any) -> None:
        if value is None or isinstance(value, (bool, int, float, complex, bytes, np.generic)):
            put(type(value).__name__, value)
        elif isinstance(value, str):
            put("" if "/" in value else value)
        elif isinstance(value, (*NO_STATE, torch.utils.data.DataLoader)) or lies_in_files(value):
            put(type(value).__name__)
        elif id(value) in met:
            put("again", met[id(value)])
        else:
            met[id(value)] = len(met)
            kept.append(value)
            put(type(value).__name__)
            inside(value)

    def inside(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            tensor = value.detach().cpu()
            inside((tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy())
        elif isinstance(value, np.ndarray) and value.dtype != object:
            put(str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes())
        elif isinstance(value, torch.optim.Optimizer):
            walk([list(value.state.values()), value.param_groups])
        elif isinstance(value, dict):
            plain = all(isinstance(name, str) for name in value)
            for name in sorted(value) if plain else value:
                if str(name) not in UNCOUNTED:
                    walk(name)
                    walk(value[name])
        elif isinstance(value, (set, frozenset)):
            put(len(value), sorted(repr(member) for member in value if isinstance(member, (str, int, float))))
        elif isinstance(value, (list, tuple, np.ndarray)):
            put(len(value))
            for part in value:
                walk(part)
        else:
            walk(getattr(value, "__dict__", None))

    walk(generators())
    walk(vars(server))
    for path in written(root).values():
        put(path.name)
        if path.suffix in (".pt", ".pth"):
            walk(torch.load(str(path), map_location="cpu"))
        else:
            put(path.read_bytes())
    return total.hexdigest()


def saved(server: Any, local: Any, root: pathlib.Path, place: str) -> list[str]:
    """Write the whole state, and return the names of attributes that a new process makes itself.

    `local` holds the local variables of the loop that live from round to round.

    Raises:
        RefusedError: An attribute that holds state cannot be saved.
    """
    state: dict[str, Any] = {}
    left: list[str] = []
    for name, value in vars(server).items():
        if lies_in_files(value):
            left.append(name)
            continue
        try:
            torch.save(value, io.BytesIO())
            state[name] = value
        except Exception as error:  # noqa: BLE001 (whatever an object of the author's raises)
            if not isinstance(value, CAN_BE_MADE_ANEW):
                raise RefusedError(f"the server's attribute {name} cannot be saved ({error})") from None
            left.append(name)
    files = {name: path.read_bytes() for name, path in written(root).items()}
    whole = {"server": state, "local": local, "generators": generators(), "files": files}  # sharing stays
    with open(place, "wb") as stream:
        torch.save(whole, stream)
        stream.flush()
        os.fsync(stream.fileno())
    return left


def restore(server: Any, frame: Any, root: pathlib.Path, place: str) -> None:
    """Replace the state of a server, of its loop, the generators and the files by those that were saved."""
    whole = torch.load(place)
    vars(server).update(whole["server"])
    set_locals(frame, whole["local"])
    for path in written(root).values():
        path.unlink()
    for name, data in whole["files"].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    set_generators(whole["generators"])


def loops_over_rounds(path: str, rounds: str) -> set[int]:
    """Return the lines of a file on which a loop asks `range` for the rounds, which have this name."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(pathlib.Path(path).read_bytes())):
        if isinstance(node, ast.For):
            over = node.iter
            if any(getattr(part, "attr", "") == rounds for part in ast.walk(over)):
                lines.update(range(over.lineno, (over.end_lineno or 0) + 1))
    return lines


class Engine:
    """The author's engine, as seen from outside.

    `order` says what to execute, and `tell` and `ask` write an event and read a command.
    """

    def __init__(self, order: Any, tell: Callable[..., None], ask: Callable[[], Any]) -> None:
        self.order, self.root, self.tell, self.ask = order, pathlib.Path(order["root"]), tell, ask
        self.server: Any = None
        self.scores: list[Any] = []
        self.participants: Any = ()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the modules of servers as usual, and look at their classes when they have been executed."""
        if not name.startswith(self.order["servers"] + "."):
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def executed(module: types.ModuleType) -> None:
                execute(module)
                self.watch(module)

            spec.loader.exec_module = executed
        return spec

    def watch(self, module: types.ModuleType) -> None:
        """Let the classes of a module say whose `train` is called."""
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ == module.__name__ and "train" in vars(kind):
                train = vars(kind)["train"]

                def trained(server: Any, *args: Any, _train: Any = train, **named: Any) -> Any:
                    if self.server is None:
                        self.begin(server, _train)
                    return _train(server, *args, **named)

                setattr(kind, "train", trained)  # noqa: B010 (mypy knows no such attribute)

    def begin(self, server: Any, train: Any) -> None:
        """Take the object whose `train` begins for the server, and watch its tests and its loop."""
        self.server = server
        for name in dir(type(server)):
            if name.startswith(tuple(self.order["tests"])):
                setattr(type(server), name, self.listening(name, getattr(type(server), name)))
        names, code = train.__globals__, train.__code__
        lines = loops_over_rounds(code.co_filename, self.order["rounds"])

        def asked(*limits: int) -> Any:
            caller = sys._getframe(1)
            if caller.f_code is code and caller.f_lineno in lines:
                del names["range"]
                return self.stepped(builtins.range(*limits), caller)
            return builtins.range(*limits)

        if not lines or "range" in names:
            kind, rounds = type(server).__name__, self.order["rounds"]
            raise RefusedError(f"train of {kind} has no loop over range(… {rounds} …)")
        names["range"] = asked

    def listening(self, name: str, function: Any) -> Any:
        """Return a function that tests as before, and whose answer is noted."""

        def tested(server: Any, *args: Any, **named: Any) -> Any:
            answer = function(server, *args, **named)
            if answer is None:  # what it found lies in the server, and it was told the round and who trained
                number, self.participants = args
                parts = {"train": server.train_perf[number], "test": server.test_perf[number]}
                scores = {part: [float(value) for value in values] for part, values in parts.items()}
                data = server.datasets
                sizes = {"n_train": int(np.size(data.client_y)), "n_test": len(data.test_y)}
                self.scores.append({"name": name, **scores, **sizes})
            else:
                columns = [[float(value) for value in column] for column in answer[:3]]
                self.scores.append({"name": name, "ids": columns[0], "n": columns[1], "correct": columns[2]})
            return answer

        return tested

    def stepped(self, steps: range, frame: Any) -> Iterator[int]:
        """Yield the author's round numbers to the loop in a frame.

        After each, `ask` gives the names of files into which the state goes, and then "go".
        """
        first = self.order["done"]
        self.tell("ready", rounds=len(steps), server=type(self.server).__name__, versions=versions())
        if self.order["state"]:
            restore(self.server, frame, self.root, self.order["state"])
        for index in builtins.range(first, len(steps)):
            self.scores, began = [], time.perf_counter()
            yield steps[index]
            self.tell(
                "round",
                index=index,
                seconds=time.perf_counter() - began,
                scores=self.scores,
                participants=len(getattr(self.server, "selected_clients", self.participants)),
                state=digest(self.server, self.root),
            )
            for place in iter(self.ask, "go"):
                local = {name: frame.f_locals[name] for name in self.order["carried"]}
                self.tell("saved", left=saved(self.server, local, self.root, place))


def versions() -> dict[str, str]:
    """Return the versions of this interpreter and of the libraries that decide bits."""
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}


def execute(order: Any, tell: Callable[..., None], ask: Callable[[], Any]) -> None:
    """Execute the author's main file, and tell how it ended."""
    lacking = [name for name in order["packages"] if importlib.util.find_spec(name) is None]
    if lacking:
        raise RefusedError(f"this interpreter lacks the packages {', '.join(lacking)}")
    main = pathlib.Path(order["root"], order["main"])
    os.chdir(str(main.parent))
    sys.path[0], sys.argv, sys.dont_write_bytecode = str(main.parent), [str(main), *order["flags"]], True
    torch.set_num_threads(order["threads"])
    random.seed(order["seed"])
    np.random.seed(order["seed"])  # noqa: NPY002
    torch.manual_seed(order["seed"])
    engine = Engine(order, tell, ask)
    sys.meta_path.insert(0, engine)
    runpy.run_path(str(main), run_name="__main__")
    if engine.server is None:
        raise RefusedError(f"{main.name} ended, and no server of {order['servers']} trained")
    tell("end")


def main() -> None:
    """Speak with the process that started this one."""
    events, commands = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def tell(event: str, **about: Any) -> None:
        events.write(json.dumps({"event": event, **about}) + "\n")
        events.flush()

    def ask() -> Any:
        line = commands.readline()
        return json.loads(line) if line else os._exit(1)  # who asked has gone

    try:
        execute(ask(), tell, ask)
    except (Exception, SystemExit) as error:
        refused = isinstance(error, RefusedError)
        tell("failed", text=str(error) if refused else f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
