"""Methods of an author's whole engine, named `pfllib:PATH#NAME`: what is known of one, and its flags.

The engine is executed as it is (raffed/adopted/driver.py), so a setting is either a flag of the author's
parser or is refused. Nothing is executed here.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from raffed.adopted.checkout import FAMILIES, AuthorFlag, Checkout, Family, Source, last_name
from raffed.adopted.traps import carried, traps_of
from raffed.config.run import RunConfig
from raffed.config.sections import SECTIONS, Model
from raffed.config.source import Described
from raffed.config.validation import Declaration, Value
from raffed.errors import UnknownNameError, UsageError
from raffed.own import gate

if TYPE_CHECKING:
    from raffed.core.method import Factory, Method
    from raffed.methods.own import Space

_FORM = re.compile(rf"({'|'.join(family.name for family in FAMILIES)}):[^#]+#[\w.-]+")
MODEL = "author:"  # before the name of a network of the author's
TAKEN = {  # fields beside these that a run of an author's engine may set
    *(f"data.{name}" for name in ("root", "download", "pool", "local_test", "samples", "split_args")),
    "data.validation",
    *("runtime.execution", "runtime.actors", "runtime.clients_per_actor", "runtime.threads"),
    *("runtime.checkpoint_every", "runtime.keep_checkpoints", "runtime.max_restarts"),
    *("runtime.author_python", "runtime.author_timeout", "runtime.gpu_fraction"),
}
# Shape of an image → what names of data sets hold
SHAPES: dict[tuple[int, ...], str] = {(1, 28, 28): "mnist", (3, 32, 32): "cifar10"}
KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}


def is_authors(name: str) -> bool:
    """Return whether a method's name is that of an author's engine, such as "pfllib:PFLlib#FedAvg"."""
    return _FORM.fullmatch(name) is not None


@functools.lru_cache(maxsize=16)
def _checkout(folder: Path, stamps: tuple[tuple[Path, int, int], ...]) -> Checkout:
    """Return a checkout, read again if its files have other stamps, because a search asks many times."""
    return Checkout(folder)


def without_engine(config: RunConfig) -> RunConfig:
    """Return a run whose setup has the same data and needs no engine; that of raffed's methods unchanged."""
    if not is_authors(config.method):
        return config
    return replace(config, method="fedavg", args={}, model=Model())


def with_own_network(config: RunConfig) -> RunConfig:
    """Return an author's run with the network that its arguments name, or its default, if it names none."""
    if config.model.name.startswith(MODEL):
        return config
    return replace(config, model=Model(AuthorsMethod(config.method).default_model(config.args)))


def refuse_authors(name: str) -> None:
    """Raise a UsageError for an author's method, where a command would have to look into its engine."""
    if is_authors(name):
        AuthorsMethod(name).load()


@dataclass(frozen=True)
class AuthorsMethod:
    """A method of an author's checkout.

    Attributes:
        name: Its name in the configuration.
        root: Where the checkout lies, if not where the name says; a run that is resumed has recorded it.
    """

    name: str
    root: str = ""
    package: ClassVar[str] = ""
    needs_held_out: ClassVar[bool] = False
    space: ClassVar[Space] = {}  # a search that is not told more tries learning rates
    source: ClassVar[str] = "an author's own engine"
    idea: ClassVar[str] = "executed as it is"

    @property
    def method(self) -> str:
        """The author's name for the method."""
        return self.name.rpartition("#")[2]

    @property
    def folder(self) -> Path:
        """Where the checkout lies."""
        written = self.name.partition(":")[2].rpartition("#")[0]
        return Path(self.root or written).expanduser().absolute()

    @functools.cached_property
    def checkout(self) -> Checkout:
        """The author's files, read and not executed."""
        files = [(path, path.lstat()) for path in sorted(self.folder.rglob("*.py"))]
        checkout = _checkout(self.folder, tuple((path, now.st_mtime_ns, now.st_size) for path, now in files))
        if checkout.family.name != self.name.partition(":")[0]:
            raise UsageError(f"{self.name}: {checkout.folder} is of the family {checkout.family.name}")
        return checkout

    @property
    def family(self) -> Family:
        """The family of its engine."""
        return self.checkout.family

    def check_trusted(self) -> None:
        """Raise an UntrustedCodeError unless the user has named the method, or has trusted this very code."""
        if not gate.is_said(self.name):
            gate.check_trusted(self.name, None, {"engine": self.checkout.sha256})

    @property
    def has_global(self) -> bool:
        """Whether the server's model is scored, and not those of the clients."""
        return self.family.central

    @property
    def title(self) -> str:
        """Name in tables."""
        return f"{self.method} ({self.folder.name})"

    def check_found(self) -> None:
        """Raise a UsageError unless the main file knows the method and its server is released."""
        methods = {method.name: method for method in self.checkout.methods() if method.server}
        if self.method not in methods:
            raise UnknownNameError(f"method of {self.checkout.main}", self.method, methods)

    def described(self) -> Described:
        """Return the flags of the author's parser as arguments."""
        flags = self.flags.items()
        known = [Declaration(name, flag.kind, flag.default, choices=flag.choices) for name, flag in flags]
        return Described(known, "", "")

    def load(self) -> Factory:
        """Refuse: there is no factory."""
        raise UsageError(
            f"{self.name} is an author's whole engine, which raffed cannot look into; run, resume, compare, "
            "tune, verify, reproduce, bundle and report take it"
        )

    def make(self, given: Mapping[str, Value]) -> Method:
        """Refuse: there is no method of raffed's."""
        return self.load()(**given)

    @functools.cached_property
    def flags(self) -> dict[str, AuthorFlag]:
        """The options of the author's parser by their long names."""
        return {max(flag.names, key=len).lstrip("-"): flag for flag in self.checkout.flags()}

    def flag_of(self, field: str) -> str:
        """Return the flag of the author's parser that stands for a field of the configuration."""
        named = [name for name, where in self.family.set_by.items() if where == field]
        known = [name for name in named if name in self.flags]
        if not known:
            raise UsageError(f"{self.checkout.main}: its parser has no flag {' or '.join(named)} for {field}")
        return known[0]

    @functools.cached_property
    def traps(self) -> dict[str, list[str]]:
        """The traps of the checkout with their places."""
        return {key: [str(place) for place in places] for key, places in traps_of(self.checkout).items()}

    @functools.cached_property
    def _loop(self) -> Source:
        """The file with the loop over rounds."""
        server = next(method.server for method in self.checkout.methods() if method.name == self.method)
        return self.checkout.loop_of(str(server))

    @property
    def ahead(self) -> int:
        """How many rounds of training the model scored in the first iteration contains, 0 or 1."""
        files = [place.rpartition(":")[0] for place in self.traps.get("scored-after", [])]
        return int(self._loop.shown in files)

    @property
    def carried(self) -> list[str]:
        """The local variables of the loop that live from round to round."""
        return sorted({node.id for node in carried(self.checkout, self._loop)})

    def default_model(self, args: Mapping[str, Value]) -> str:
        """Return the name of the network in a configuration that names none."""
        flag = self.flag_of("model.name")
        return MODEL + str(args.get(flag, ast.literal_eval(self.flags[flag].default)))

    def check(self, config: RunConfig) -> None:
        """Refuse what can be refused before the data are read.

        Raises:
            UsageError: The engine cannot be executed or resumed, or does not have a setting.
        """
        self.check_found()
        checkout = self.checkout
        if lost := checkout.files():
            raise UsageError(
                f"{checkout.folder}: the release lacks {', '.join(map(str, lost))}; ask its author for them"
            )
        lacking = [] if config.runtime.author_python else checkout.packages()
        if lacking:
            names = " ".join(missing.name for missing in lacking)
            raise UsageError(
                f"{self.name} imports {', '.join(map(str, lacking))}, not installed here; install "
                f"{names}, or give --author-python with an interpreter that has them"
            )
        self._check_fields(config)
        self._check_args(config.args)
        flag = self.flag_of("model.name")
        if flag in config.args and config.model.name != MODEL + str(config.args[flag]):
            raise UsageError(f"model.name = {config.model.name!r} and --set {flag}: give one of them")

    def _check_fields(self, config: RunConfig) -> None:
        usual = _fields(RunConfig())
        changed = {field for field, value in _fields(config).items() if value != usual[field]}
        if refused := sorted(changed - TAKEN - set(self.family.set_by.values())):
            raise UsageError(
                f"{self.name}: raffed would have to do {', '.join(refused)} inside the author's loop; leave "
                "them out"
            )
        if not config.model.name.startswith(MODEL):
            raise UsageError(
                f"model.name = {config.model.name!r}: {self.name} has networks of its own; give --model "
                f"{self.default_model({})}"
            )
        if config.local.epochs != int(config.local.epochs):
            raise UsageError(f"local.epochs = {config.local.epochs}: the author's engine takes whole epochs")

    def _check_args(self, args: Mapping[str, Value]) -> None:
        free = (self.flag_of("model.name"), "dataset")
        for name, value in args.items():
            if name not in self.flags:
                raise UnknownNameError(f"flag of {self.checkout.main}", name, self.flags)
            flag, field = self.flags[name], self.family.set_by.get(name)
            if field and name not in free:
                raise UsageError(f"--set {name}: {field} sets it; leave it out")
            chosen = not flag.choices or str(value) in flag.choices
            if value is False or not chosen or type(value) not in KINDS.get(flag.kind, (bool,)):
                wanted = " or ".join(flag.choices) or flag.kind
                every = ", and its parser reads every text as true" if value is False else ""
                raise UsageError(
                    f"--set {name}={value}: it must be {wanted}{every}; leave it out for the author's "
                    f"default, {flag.default}"
                )

    def dataset_name(self, dataset: str, shape: Sequence[int], args: Mapping[str, Value]) -> str:
        """Return the name that the author's code must find in its flag for data of a name and shape.

        Raises:
            UsageError: Main file and data do not say it, and `--set dataset=NAME` is missing.
        """
        if "dataset" in args:
            if not gate.is_below(str(args["dataset"])):
                raise UsageError(
                    f"--set dataset={args['dataset']} leads out of the folder of the data; give a name"
                )
            return str(args["dataset"])
        choices = self.flags[
            self.flag_of("data.dataset")
        ].choices  # with them, it stands for the classes, too
        tested = set(choices) or {
            str(node.left.value)
            for node in self.checkout.entry.all(ast.Compare)
            if isinstance(node.left, ast.Constant) and last_name(node.comparators[0]) == "dataset"
        }
        known = dataset.replace("-", "") if choices else SHAPES.get(tuple(shape))
        fitting = sorted(name for name in tested if name.lower() == known)
        if not fitting:
            raise UsageError(
                f"{self.name} chooses networks by the data's name ({', '.join(sorted(tested))}), and "
                f"{dataset} with inputs of the shape {list(shape)} has none; give --set dataset=NAME"
            )
        return fitting[0]

    def command(self, config: RunConfig, clients: int, classes: int, shape: Sequence[int]) -> list[str]:
        """Return the flags of a run, in the order of the author's parser."""
        values = _fields(config) | {
            "method": self.method,
            "data.split": clients,
            "runtime.gpu_fraction": "cuda" if config.runtime.gpu_fraction else "cpu",
            "federation.rounds": config.federation.rounds + 1 - self.ahead - self.family.extra,
            "local.epochs": int(config.local.epochs),
            "model.name": config.model.name.removeprefix(MODEL),
        }
        settable = self.family.set_by.values()
        given = {self.flag_of(field): value for field, value in values.items() if field in settable}
        named = self.dataset_name(config.data.dataset, shape, config.args)
        given |= {"num_classes": classes, "seed": config.seed, "dataset": named}
        given |= {**config.args, **self.family.given}
        words: list[str] = []
        for name, flag in self.flags.items():
            if name in given:
                value = given[name]
                words += [f"--{name}", *([] if flag.kind == "store_true" else [_word(value)])]
        return words


def _fields(config: RunConfig) -> dict[str, Value]:
    """Return the settings of a run's sections by their names, such as local.lr, and its own loss."""
    fields: dict[str, Value] = {"loss": config.loss}
    for section in SECTIONS:
        fields |= {f"{section}.{name}": value for name, value in asdict(getattr(config, section)).items()}
    return fields


def _word(value: Value) -> str:
    return value if isinstance(value, str) else "True" if value is True else json.dumps(value)
