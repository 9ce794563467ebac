"""The families of engines: how the releases of each are laid out, stepped, and set."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Family(NamedTuple):
    """A kind of engine.

    Attributes:
        name: The word before the colon of a method, such as `pfllib:PATH#NAME`.
        main: The name of the file that the author starts.
        flag: The flag of its parser that names the method.
        servers: The package that holds the servers.
        clients: The package that holds the clients.
        rounds: The attribute over whose range the server's loop goes.
        extra: How many iterations the loop has beyond that number.
        tests: Beginnings of the names of the server's functions whose answers are scores.
        data: The folder of the clients' samples, from the main file's folder, with {dataset}, {clients} and
            {seed} in its name.
        central: Whether the samples of all clients lie in one array, and the server's model is scored on the
            test set. Otherwise every client has samples of its own for both.
        set_by: Flag of the author's parser → the field, or option, that sets it. Of several flags of a field
            the first one that the parser has stands for it.
        given: Flag → its value in every run, where the parser has it.
    """

    name: str
    main: str
    flag: str
    servers: str
    clients: str
    rounds: str
    extra: int
    tests: Sequence[str]
    data: str
    central: bool
    set_by: Mapping[str, str]
    given: Mapping[str, str | float | bool]


TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
FAMILIES = [Family(name, **about) for name, about in TABLE.items()]
