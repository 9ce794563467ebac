"""MOON (Li et al. 2021): features pulled towards the global model's, away from the client's own previous
ones.
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from raffed import Context, Forward, Method, Params, Private, State, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.parts import in_part
from raffed.methods.fedproc import WithPrototypes, prototype_terms


class PreviousModel(Private):
    """The client's encoder after its last local training (not the aggregate), and its BatchNorm
    statistics.
    """

    body: Params
    b: Params

    @staticmethod
    def of(model: State) -> PreviousModel:
        return PreviousModel(model.w.only(n for n in model.w.names if in_part(n, "body")), model.b)


class ModelContrast(Term[PreviousModel]):
    """μ · mean −log( e^{s_g/τ} / (e^{s_g/τ} + e^{s_p/τ}) ) = μ · mean softplus((s_p − s_g)/τ).

    s is the cosine to z. Global and previous model run in evaluation mode without gradient on the same batch.
    z is the input of the head. There is no projection head, as the parameter counts of FedMR's Table 3 imply.
    The official one, which is 256 wide and is also read by the classifier, is a keyword of the networks:
    `projection`. At a client's first participation the previous model is the global one, so the term is log 2
    with gradient exactly 0. The official code has no term in the run's first round. If a client first takes
    part later, the official code takes another model with random weights there, and MAP's code the run's
    initial model.
    """

    mu: float
    tau: float

    def client_init(self, k: Context) -> PreviousModel:
        return PreviousModel.of(k.start)

    def loss(self, f: Forward, k: Context[PreviousModel]) -> Tensor:
        _, z_global = k.net(k.start, f.x)
        previous = Params({**k.w0.tensors, **k.mine.body.tensors})  # any head: its output is not used
        _, z_previous = k.net(State(previous, k.mine.b), f.x)
        return self.mu * model_contrast(f.z, z_global, z_previous, self.tau)

    def finish(self, k: Context) -> tuple[PreviousModel, None]:
        return PreviousModel.of(k.state), None


def model_contrast(z: Tensor, z_global: Tensor, z_previous: Tensor, tau: float) -> Tensor:
    """mean softplus((cos(z, z_previous) − cos(z, z_global))/τ) of features [B, D]; nats.

    The difference is taken between the unit vectors, so that equal ones cancel to the last bit.
    """
    away = F.normalize(z_previous, dim=-1) - F.normalize(z_global, dim=-1)
    return F.softplus((F.normalize(z, dim=-1) * away).sum(-1) / tau).mean()


@checked
def moon(
    mu: Annotated[float, Range(0.0, 1e6), Strength(), Doc("μ, weight of the contrast; 0 is FedAvg.")] = 1.0,
    tau: Annotated[float, Range(0.0, 100.0, open_low=True), Doc("τ, temperature of the contrast.")] = 0.5,
    prototypes: WithPrototypes = "none",
) -> Method:
    """MOON: features are pulled towards the global model's and away from the client's own previous ones.

    Equation:
        CE + μ · mean −log( e^{s_g/τ} / (e^{s_g/τ} + e^{s_p/τ}) ), s the cosine to z (`ModelContrast`).

    Source:
        Li et al. 2021. Row MOON of FedMR's Table 1 and MAP's Tables I and II. The authors search μ in 0.1, 1,
        5 and 10, MAP's code in 1e-3, 1e-2 and 1e-1.
    """
    return Method("MOON", terms=((ModelContrast(mu, tau),) if mu else ()) + prototype_terms(prototypes))
