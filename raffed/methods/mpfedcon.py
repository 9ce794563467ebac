"""MpFedcon (2022): a shared encoder under a private projection and output layer, contrasted with global
class centres.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from raffed import Context, Forward, Method, ParameterSplit, Params, Pass, Received, Spec, State, Term
from raffed.config.validation import Doc, Range, Strength, checked
from raffed.core.losses import one_hot
from raffed.core.parts import in_part
from raffed.errors import UsageError
from raffed.methods.common import ClassSums, Prototypes, class_mean_sums
from raffed.methods.moon import PreviousModel

CentreWeight = Literal["uniform", "party_size", "class_count"]


class CentreContrast(Term[PreviousModel, ClassSums, Prototypes]):
    """μ · mean −log[ e^{sim(z,c_y)/τ} / (e^{sim(z,c_y)/τ} + e^{sim(z,z_con)/τ}) ] (eqs. 5, 6).

    sim is the cosine. c_y is the global centre of the sample's class. z_con is the sample's representation by
    the round's downloaded encoder under the client's heads before the round. Samples whose class has no
    centre are left out (mean over the rest, 0 without any). Centres are means over the clients that hold the
    class (eq. 4). A centre that no participant holds keeps its last value.
    """

    mu: float
    tau: float
    weighting: str = "uniform"

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def loss(self, f: Forward, k: Context[PreviousModel, Prototypes]) -> Tensor:
        z_con = k.net(self.negative(f, k), f.x)[1]
        return self.mu * centre_contrast(f.z, f.y, k.server.mean, k.server.known, z_con, self.tau)

    def negative(self, f: Forward, k: Context) -> State:
        """The model whose representation is the negative: θ^t under the client's heads, before the head
        epochs.
        """
        return k.start

    def finish(self, k: Context) -> tuple[PreviousModel | None, ClassSums]:
        return None, class_mean_sums(k, self.weighting)

    def server_step(self, s: Prototypes, got: Received[ClassSums], spec: Spec) -> Prototypes:
        return s if got.sum is None else s.updated(got.sum)


class PreviousContrast(CentreContrast):
    """The same with the client's previous local model as negative, as eq. 6 lists it; the downloaded one
    at first.
    """

    def client_init(self, k: Context) -> PreviousModel:
        return PreviousModel.of(k.start)

    def negative(self, f: Forward, k: Context[PreviousModel, Prototypes]) -> State:
        return State(Params({**k.w0.tensors, **k.mine.body.tensors}), k.mine.b)

    def finish(self, k: Context) -> tuple[PreviousModel, ClassSums]:
        return PreviousModel.of(k.state), class_mean_sums(k, self.weighting)


class HeadContrast(CentreContrast):
    """The same with the downloaded encoder under the heads as they are now, after the head epochs."""

    def negative(self, f: Forward, k: Context) -> State:
        return State(
            Params({name: (k.w0 if in_part(name, "base") else f.w)[name] for name in k.w0.names}), k.start.b
        )


Negative = Literal["round_start", "previous_local", "after_head"]
CONTRASTS = {"round_start": CentreContrast, "previous_local": PreviousContrast, "after_head": HeadContrast}


def centre_contrast(
    z: Tensor, y: Tensor, centres: Tensor, known: Tensor, z_con: Tensor, tau: float
) -> Tensor:
    """Eq. 5 as softplus((sim(z, z_con) − sim(z, c_y))/τ), mean over the samples whose class is known; [] in
    nats.

    z, z_con [B, D], y [B], centres [C, D], known [C] bool. Centres and z_con get no gradient.
    """
    label = one_hot(y, centres.shape[0]).to(z.dtype)
    centre = label @ F.normalize(centres.masked_fill(~known[:, None], 0.0), dim=-1).to(z.dtype)
    away = F.normalize(z_con, dim=-1) - centre
    each = F.softplus((F.normalize(z, dim=-1) * away).sum(-1) / tau)
    anchor = label @ known.to(z.dtype)
    return torch.where(anchor > 0, each, 0.0).sum() / anchor.sum().clamp(min=1)


@checked
def mpfedcon(
    mu: Annotated[float, Range(0.0, 1e6), Strength(), Doc("μ, weight of the contrast; 0 is FedRep.")] = 10.0,
    tau: Annotated[float, Range(0.0, 100.0, open_low=True), Doc("τ, temperature of the contrast.")] = 0.5,
    head_epochs: Annotated[
        float, Range(0.0, 1e4), Doc("Epochs of the private projection and output layer, which come first.")
    ] = 10.0,
    encoder_epochs: Annotated[float, Range(0.0, 1e4), Doc("Epochs of the shared encoder.")] = 1.0,
    centre_weight: Annotated[
        CentreWeight,
        Doc("Weights of the clients' class centres: equal, by their samples, or by those of the class."),
    ] = "uniform",
    negative: Annotated[
        Negative,
        Doc(
            "Model of the negative: the client's before the round, its last one (eq. 6), or between both "
            "phases."
        ),
    ] = "round_start",
) -> Method:
    """MpFedcon: a shared encoder under private layers, contrasted with global class centres.

    Equation:
        First head_epochs of CE on projection and output, then encoder_epochs of CE + μ l_con on the encoder
        (`CentreContrast`, eqs. 4 to 6). For networks without a projection (`cnn5` and `mlp5` have one) the
        private part is the head. μ = 0 is FedRep with that part.

    Source:
        MpFedcon 2022. μ = 10 and 10 + 1 epochs are the paper's for CIFAR-10 (5 encoder epochs on CIFAR-100
        and FEMNIST), τ = 0.5 is MOON's. Row MpFedcon of Tables 1 to 4.

    Departure: encoders are weighted by samples. Algorithm 1's further 1/n would shrink them.
    """
    if not head_epochs and not encoder_epochs:
        raise UsageError("head_epochs = 0 and encoder_epochs = 0: nothing would be trained")
    passes = (Pass("top", head_epochs, cross_entropy_only=True), Pass("base", encoder_epochs))
    return Method(
        "MpFedcon",
        terms=(CONTRASTS[negative](mu, tau, centre_weight),) if mu else (),
        split=ParameterSplit(personal="top"),
        passes=tuple(pass_ for pass_ in passes if pass_.epochs),
    )
