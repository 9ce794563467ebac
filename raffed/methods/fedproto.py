"""FedProto (Tan et al. 2022): clients share class prototypes and no weights."""

from __future__ import annotations

from torch import Tensor

from raffed.core.boundary import Wire
from raffed.core.context import Context, Forward
from raffed.core.errors import check_range
from raffed.core.maths import one_hot
from raffed.core.method import Method, Received, Spec, Term
from raffed.core.params import Params
from raffed.core.server import Mean
from raffed.methods.memory import ClassSums, Prototypes, class_sums
from raffed.methods.solo import PRIVATE


class PrototypePull(Term):
    """λ · mean_{i: g_{y_i} exists} ‖h_i − g_{y_i}‖²/d, the mean-squared error of the official code.

    Prototypes are class means of the locally trained model over the client's training set (evaluation mode); the server's
    are their sample-weighted means over the participants, and a class that none of them holds keeps its last one. A class
    never seen has none: it pulls nothing (no zero vectors, no halving). Sums and counts of all C classes travel, C·(d + 1)
    numbers; a sparse encoding would send |C_k|·(d + 1).
    """

    lam: float

    def server_init(self, w: Params, spec: Spec) -> Prototypes:
        return Prototypes.empty(spec.num_classes, spec.feature_dim)

    def loss(self, f: Forward, k: Context) -> Tensor:
        return self.lam * prototype_pull(f.z, f.y, k.server.mean, k.server.known)

    def finish(self, k: Context) -> tuple[None, Wire]:
        return None, class_sums(k, k.state)

    def server_step(self, s: Prototypes, got: Received, spec: Spec) -> Prototypes:
        return s.updated(got.sum) if isinstance(got.sum, ClassSums) else s


def prototype_pull(z: Tensor, y: Tensor, g: Tensor, known: Tensor) -> Tensor:
    """Mean over anchors of ‖z − g_y‖²/D for z [B, D], y [B], prototypes g [C, D], known [C] bool; 0 without an anchor."""
    label = one_hot(y, g.shape[0]).to(z.dtype)
    anchor = label @ known.to(z.dtype)  # [B]
    own = label @ g.masked_fill(~known[:, None], 0.0).to(z.dtype)
    return (anchor * (z - own).square().mean(-1)).sum() / anchor.sum().clamp(min=1)


def fedproto(lam: float = 1.0) -> Method:
    """FedProto, λ ≥ 0 (0: SOLO); 1 is the official default, 0.1 its value for CIFAR-10. Row FedProto of MAP's Table II.

    Every client keeps its whole model, all from the same initial one. Scored with the client's own classifier; the server
    holds no model.
    """
    check_range("lam", lam, 0.0, 1e6)
    return Method("FedProto", terms=(PrototypePull(lam),), split=PRIVATE, mean=Mean(by="clients"))
