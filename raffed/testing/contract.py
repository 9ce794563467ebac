"""One check for every kind of object: the sentences that must hold of it, and what came of each.

A kind is a subclass of `Contract`. What a run calls again and again, such as a loss, is a `FunctionContract`.
It makes a few example calls, and looks for state, hidden randomness and changed arguments.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from raffed.errors import RaffedError
from raffed.own.located import is_file, is_reference, located
from raffed.own.names import reference_to
from raffed.own.user_code import where_raised

if TYPE_CHECKING:
    import pandas as pd

Arguments = TypeVar("Arguments")
Result = TypeVar("Result")
Kind = Literal["method", "model", "dataset", "split", "loss", "metric", "schedule", "selection", "table"]


class ContractError(AssertionError):
    """A check does not hold. The message begins with the name of what was checked."""


class NotApplicableError(Exception):
    """Raised by a check that says nothing about this object; the message is the reason."""


@dataclass(frozen=True)
class CheckFinding:
    """The outcome of one check.

    Attributes:
        name: Name of the check, such as "same-seed-same-bits".
        sentence: What should hold.
        state: "holds", "fails", or "does not apply".
        why: What is wrong and where, or why the check does not apply; "" if it holds.
    """

    name: str
    sentence: str
    state: Literal["holds", "fails", "does not apply"]
    why: str = ""


@dataclass(frozen=True)
class Findings:
    """The outcomes of all checks of one object.

    Attributes:
        kind: What the object was recognised as.
        subject: Its reference or name.
        found: One outcome for each check, in order.
        notes: What else a user may not expect, such as a part of the data that is not used.
    """

    kind: Kind
    subject: str
    found: tuple[CheckFinding, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[CheckFinding]:
        return iter(self.found)

    @property
    def ok(self) -> bool:
        """Whether no check fails."""
        return not self.failed

    @property
    def failed(self) -> list[CheckFinding]:
        """The outcomes of the checks that fail."""
        return [finding for finding in self.found if finding.state == "fails"]

    def to_pandas(self) -> pd.DataFrame:
        """Return the outcomes as a pandas frame with the columns check, sentence, state and why."""
        import pandas as pd

        rows = [(finding.name, finding.sentence, finding.state, finding.why) for finding in self.found]
        return pd.DataFrame(rows, columns=["check", "sentence", "state", "why"])

    def raise_if_failed(self) -> None:
        """Raise a ContractError that names each failing check, what is wrong, and where."""
        if not self.ok:
            lines = [f"{failed.name}: {failed.why} (the rule: {failed.sentence})" for failed in self.failed]
            raise ContractError(f"{self.subject}, {self.kind}: " + "; ".join(lines))


PREFIX = "check_"


class Contract:
    """An object that is checked, and the sentences that must hold of it.

    Each method whose name begins with `check_` is one check. Its docstring is the sentence. It returns what
    is wrong, or "" if the sentence holds, and it raises a NotApplicableError if the sentence says nothing
    about this object.
    """

    kind: ClassVar[Kind]

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the checks: those of this kind, then those that kinds have in common."""
        methods = dict.fromkeys(
            name for home in cls.__mro__ for name in vars(home) if name.startswith(PREFIX)
        )
        return [name.removeprefix(PREFIX).replace("_", "-") for name in methods]

    def findings(self, called: str) -> Findings:
        """Return the outcome of each check; `called` is what messages call the object."""
        return Findings(self.kind, called, tuple(self.outcome(name, called) for name in self.names()))

    def outcome(self, name: str, called: str) -> CheckFinding:
        """Return the outcome of one check. An error in the object's own code is one, with file and line.

        Args:
            name: Name of the check, such as "one-sample".
            called: What messages call the object if an error has no line in its own code.
        """
        check: Callable[[], str] = getattr(self, PREFIX + name.replace("-", "_"))
        sentence = " ".join((inspect.getdoc(check) or name).split())
        try:
            with self.surroundings():
                why = check()
        except NotApplicableError as error:
            return CheckFinding(name, sentence, "does not apply", str(error))
        except RaffedError as error:
            why = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the user's code raises is the finding)
            why = f"{where_raised(error, called)}: {type(error).__name__}: {error}"
        return CheckFinding(name, sentence, "fails" if why else "holds", " ".join(why.split()))

    def surroundings(self) -> AbstractContextManager[None]:
        """Return what each check is made in."""
        return nullcontext()


class FunctionContract(Contract, Generic[Arguments, Result]):
    """What holds of every function that a run calls again and again, in several processes."""

    def remedy(self) -> str:
        """Return what to do about a function that remembers something."""
        return "keep nothing between calls"

    def examples(self) -> Sequence[Arguments]:
        """Return the arguments of a few calls, made anew."""
        raise NotImplementedError

    def call(self, arguments: Arguments) -> Result:
        """Return what the function gives for the arguments of one example."""
        raise NotImplementedError

    def check_same_twice(self) -> str:
        """Equal arguments give the same result, whatever was called before."""
        forwards = [self.call(arguments) for arguments in self.examples()]
        backwards = [self.call(arguments) for arguments in reversed(self.examples())][::-1]
        return "" if same_values(forwards, backwards) else f"equal calls give other results; {self.remedy()}"

    def check_no_global_generator(self) -> str:
        """The global random generators are left alone."""
        return global_draws(lambda: [self.call(arguments) for arguments in self.examples()])


class PureContract(FunctionContract[Arguments, Result]):
    """The same of a function whose arguments hold arrays or lists, which it could change."""

    def check_inputs_unchanged(self) -> str:
        """Its arguments are not changed."""
        given = self.examples()
        for arguments in given:
            self.call(arguments)
        same = same_values(given, self.examples())
        return "" if same else "it changes its arguments in place, which others use too; work on a copy"


def same_values(some: pytree.PyTree, others: pytree.PyTree) -> bool:
    """Return whether nested lists, records and arrays hold the same, bit for bit (NaN equals NaN)."""
    left, right = pytree.tree_flatten(some), pytree.tree_flatten(others)
    return left[1] == right[1] and [*map(_bits, left[0])] == [*map(_bits, right[0])]


def _bits(value: pytree.PyTree) -> tuple[str, tuple[int, ...], bytes]:
    array = value.numpy(force=True) if isinstance(value, Tensor) else value
    if isinstance(array, np.ndarray):
        return str(array.dtype), array.shape, array.tobytes()
    return type(value).__name__, (), repr(value).encode()


# Whether code reads or seeds a global random generator: Python's, NumPy's or torch's.


ODD = 2_718_281  # nobody's own seed, so that seeding is noticed too


def global_draws(act: Callable[[], T]) -> str:
    """Call a function, and say which global generators it read or seeded.

    Afterwards all of them are as they were before.

    Args:
        act: The function.

    Returns:
        What is wrong, or "" if none was touched.
    """
    outer = random.getstate(), np.random.get_state()  # noqa: NPY002 (read, to see that nobody else reads it)
    with torch.random.fork_rng(devices=[]):
        try:
            torch.set_rng_state(torch.Generator().manual_seed(ODD).get_state())
            random.setstate(random.Random(ODD).getstate())
            np.random.set_state(np.random.RandomState(ODD).get_state())  # noqa: NPY002
            before = _states()
            act()
            after = _states()
        finally:
            random.setstate(outer[0])
            np.random.set_state(outer[1])  # noqa: NPY002
    touched = [name for name, state in before.items() if after[name] != state]
    return f"the global random generator of {' and of '.join(touched)} was read or seeded" if touched else ""


def _states() -> dict[str, str]:
    numbers = np.random.get_state(legacy=False)  # noqa: NPY002
    return {
        "Python": repr(hash(random.getstate())),
        "NumPy": repr(numbers),
        "torch": torch.get_rng_state().numpy().tobytes().hex(),
    }


# The module variables of a method's code: what it must not keep anything in.
#
# Another process, such as a client actor or a resumed run, imports the module anew and finds these
# variables as they were written there. The checks imitate this.


PLAIN = (bool, int, float, str, dict, list, set, Tensor)


class ModuleVariables:
    """The values of module variables as they were at first.

    Args:
        modules: The modules. Functions, classes and other objects in them are left alone.
    """

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._known: dict[tuple[ModuleType, str], pytree.PyTree] = {
            (module, name): _copied(value)
            for module in modules
            for name, value in vars(module).items()
            if not name.startswith("__") and isinstance(value, PLAIN)
        }

    @contextmanager
    def as_in_another_process(self) -> Iterator[None]:
        """Inside the block the variables have these values again; after it, those of before the block."""
        kept = {(module, name): getattr(module, name) for module, name in self._known}
        self._set({place: _copied(value) for place, value in self._known.items()})
        try:
            yield
        finally:
            self._set(kept)

    def changed(self) -> str:
        """Return which variable has changed since then; "" if none has."""
        for (module, name), value in self._known.items():
            if not same_values(getattr(module, name, None), value):
                file = Path(module.__file__ or module.__name__).name
                return f"{file} keeps something in its variable {name}, which other processes do not see"
        return ""

    @staticmethod
    def _set(values: dict[tuple[ModuleType, str], pytree.PyTree]) -> None:
        for (module, name), value in values.items():
            setattr(module, name, value)


def _copied(value: pytree.PyTree) -> pytree.PyTree:
    if isinstance(value, set):
        return set(value)
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), value)


# From what a person gives to the object that is checked: a reference, or the object itself.


T = TypeVar("T")


def is_code(text: str) -> bool:
    """Return whether a text refers to Python code here: a file, or a module that can be imported.

    "npz:arrays.npz" has the form of a reference, and names a file of data.
    """
    if not is_reference(text):
        return False
    home = text.rpartition(":")[0]
    return is_file(home) or any(located(module) for module in (home, home.partition(".")[0]))


def typed(thing: str | Callable[..., T]) -> str:
    """Return what a configuration stores for a function or its name.

    Raises:
        UsageError: No other process could find the function.
    """
    return thing if isinstance(thing, str) else reference_to(thing)


def named(thing: T) -> str:
    """Return what messages call an object: its reference, its name, or its type."""
    if isinstance(thing, str):
        return thing
    return str(getattr(thing, "__name__", "") or getattr(thing, "name", "") or type(thing).__name__)
