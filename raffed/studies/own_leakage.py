"""What a server can read out of the upload of one's own method, or of a client with one's own network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from raffed.attacks.leakage import Effort
from raffed.attacks.protocol import MARKS, attack, chosen_images, summary
from raffed.attacks.settings import Setting
from raffed.config.validation import Value
from raffed.core.method import Factory
from raffed.data.datasets import load_dataset
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError, check_range
from raffed.methods import method_name
from raffed.models.catalogue import model_name
from raffed.references.names import as_name


def leakage(
    method: str | Factory = "fedavg",
    args: Mapping[str, Value] | None = None,
    *,
    model: str | Callable[..., torch.nn.Module] = "lenet_dlg",
    model_args: Mapping[str, Value] | None = None,
    dataset: str = "digits",
    images: int = 4,
    iterations: int = 100,
    restarts: int = 2,
    root: str | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Attack single steps of clients by deep leakage from gradients (DLG), as MpFedcon's Fig. 10 does.

    Every client has one image and makes one step of SGD. The attacker knows all weights before the step, the
    learning rate, and what was sent, and searches for an image whose gradient is the observed one.

    Args:
        method: A name, a reference such as "./prox.py:myprox", or the function itself.
        args: Arguments of the method.
        model: A name, a reference, or the class. L-BFGS needs second derivatives: take smooth activations,
            such as sigmoid; with ReLU the attack mostly fails, which says nothing about the method.
        model_args: Arguments of the network.
        dataset: Images, by name.
        images: How many of its training images are attacked, at least 1.
        iterations: Iterations of L-BFGS for each start, at least 1.
        restarts: Starts for each image, at least 1.
        root: Folder of the data sets; without it the one in RAFFED_DATA.
        seed: Seed of weights, images and starts.

    Returns:
        Metric → number, such as "mse" (median over the images, 0 is the image itself), "psnr", "recognised"
        (share of images with an error below 0.03) and "label attack" (share of right labels).

    Raises:
        UsageError: A name does not exist, or the method does not make exactly one step on one image.

    Example:
        >>> from raffed.studies.own_leakage import leakage
        >>> leakage("fedavg", images=1)["recognised"]  # doctest: +SKIP
        1.0
    """
    for name, value in (("images", images), ("iterations", iterations), ("restarts", restarts)):
        check_range(name, value, 1, 100_000)
    network = model_name(as_name(model))
    given, named = dict(model_args or {}), method_name(as_name(method))
    setting = Setting("own", named, dict(args or {}), model=network, model_args=given)
    data = load_dataset(dataset, root)
    if data.x.ndim != 4:
        raise UsageError(f"{dataset}: it holds no images; leakage is measured on images")
    chosen = chosen_images(torch.from_numpy(data.y), images, seed)
    transform, _ = data.transform_in("plain")
    x = prepare_inputs(data.x[chosen], transform, data.max_value)
    effort = Effort(iterations=iterations, restarts=restarts)
    found = [
        attack(setting, image, int(data.y[place]), data.num_classes, number, seed, effort)
        for number, (image, place) in enumerate(zip(x, chosen, strict=True))
    ]
    return summary(found, [mark for mark in MARKS if mark <= iterations])


__all__ = ["leakage"]
