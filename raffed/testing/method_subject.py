"""A method that is being checked, and the federations in which it is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

from raffed.config.validation import Value
from raffed.core.method import Factory, Method
from raffed.own.user_code import is_user_code
from raffed.testing.federation import TinyFederation, network
from raffed.testing.module_variables import ModuleVariables

EVERYBODY = (0, 1, 2, 3)


@dataclass(frozen=True)
class MethodSubject:
    """A method to be checked. `factory` is None if only the finished recipe was given."""

    factory: Factory | None
    args: Mapping[str, Value]
    recipe: Method | None = None

    def made(self) -> Method:
        """Return the recipe, made anew if there is a factory."""
        if self.factory is None:
            assert self.recipe is not None
            return self.recipe
        return self.factory(**self.args)

    def tiny(self, seed: int = 0, norm: bool = True) -> TinyFederation:
        """Return a federation of this method before its first round."""
        return TinyFederation(self.made(), net=network(norm), seed=seed)

    @cached_property
    def begun(self) -> TinyFederation:
        """A federation after two rounds of everybody. Checks must not change it."""
        with self.another_process():
            return self.tiny().run(2, EVERYBODY)

    @cached_property
    def variables(self) -> ModuleVariables:
        """The module variables of the method's own code, as they are when a check first asks for them."""
        homes = [] if self.factory is None else [inspect.getmodule(inspect.unwrap(self.factory))]
        homes += [inspect.getmodule(type(one)) for _, one in self.made().ingredients()]
        own = [one for one in homes if one is not None and is_user_code(one.__file__ or "<")]
        return ModuleVariables(list(dict.fromkeys(own)))

    def another_process(self) -> AbstractContextManager[None]:
        """Imitate another process, which finds the module variables of the method's code untouched."""
        return self.variables.as_in_another_process()

    def advice(self, otherwise: str) -> str:
        """Return what to do about code that remembers something where other processes cannot see it.

        Args:
            otherwise: What is returned if no module variable has changed.
        """
        return self.variables.advice() or otherwise


__all__ = ["EVERYBODY", "MethodSubject"]
