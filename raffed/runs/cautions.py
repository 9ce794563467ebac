"""Warnings about settings that are valid but probably unintended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from raffed.core.ingredients import Ingredient
from raffed.core.training.overrides import override_line
from raffed.runtime.machine import bf16_gain, bf16_in_hardware
from raffed.runtime.network_setup import has_normalisation
from raffed.runtime.run_method import network_line

if TYPE_CHECKING:
    from raffed.runtime.setup import Setup

log = logging.getLogger("raffed.runs.run")


def warn(setup: Setup, resumed: bool = False) -> None:
    """Log a warning for each setting that is valid but probably unintended.

    What the method overrides, what it requires of the network, and which parts of the data are used, is said
    when a run begins, and not again when it is resumed.
    """
    config, federation, clients = setup.config, setup.config.federation, len(setup.trainable)
    if federation.participation * clients < 0.5:  # rounding would give 0 participants
        log.warning(
            "federation.participation = %g of %d clients is %.2g of one: one client is trained per round",
            federation.participation,
            clients,
            federation.participation * clients,
        )
    if not resumed and (line := override_line(setup.method, config.local)):
        log.warning("%s", line)
    if not resumed and (line := network_line(setup.method)):
        log.warning("%s", line)
    for line in () if resumed else (*setup.dataset.facts.notes, *_about_network(setup)):
        log.warning("%s", line)
    if note := setup.dataset.transform_in(setup.style).note:
        log.warning("%s", note)
    if config.faults.takes_all:
        log.warning(
            "faults: with drop, late or corrupt = 1 no upload ever counts, so the server's model never "
            "changes"
        )
    if config.privacy.noise and setup.method.server.adaptive:
        log.warning(
            "privacy.noise with %s: its server divides by the root of the mean squared update, most of which "
            "may be noise. epsilon holds all the same, but little may be learned; fedavg and fedavgm do not "
            "divide by it",
            setup.method.name,
        )
    if not setup.method.has_global and not any(
        len(part) for part in (*setup.partition.test, *setup.partition.val)
    ):
        log.warning(
            "%s has no global model and no client has a local test part: no accuracy will be measured; "
            "give data.local_test (--local-test), such as 0.2",
            setup.method.name,
        )
    if (
        config.numerics.precision == "bf16"
        and not config.runtime.gpu_fraction
        and (gain := bf16_gain()) < 1.0
    ):
        why = "has no instructions for it" if bf16_in_hardware() is False else "is slower in it"
        log.warning(
            "numerics.precision bf16: this processor %s: a matrix product takes %.1f times as long as "
            "in fp32",
            why,
            1 / gain,
        )


def _about_network(setup: Setup) -> list[str]:
    """Return what the method's ingredients say about the run's network, with the names of both."""
    asked = [one for _, one in setup.method.ingredients() if type(one).caution is not Ingredient.caution]
    if not asked:
        return []
    found = [one.caution(has_normalisation(setup)) for one in asked]
    return [f"{setup.method.name} with {setup.config.model.name}: {line}" for line in found if line]
