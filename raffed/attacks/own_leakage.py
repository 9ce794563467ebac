"""What a server can read out of the upload of one's own method, or of a client with one's own network."""

from __future__ import annotations

import torch

from raffed.attacks.leakage import Effort
from raffed.attacks.protocol import MARKS, attack, chosen_images, summary
from raffed.attacks.settings import Setting
from raffed.config.run import RunConfig
from raffed.data.datasets import load_dataset
from raffed.data.transforms import prepare_inputs
from raffed.errors import UsageError, check_range
from raffed.methods import method_name
from raffed.models.catalogue import model_name
from raffed.runtime.run_network import network_args


def leakage(
    config: RunConfig, *, images: int = 4, iterations: int = 100, restarts: int = 2
) -> dict[str, float]:
    """Attack single steps of clients by deep leakage from gradients (DLG), as MpFedcon's Fig. 10 does.

    Every client has one image and makes one step of plain SGD. The attacker knows all weights before the
    step, the learning rate, and what was sent, and searches for an image whose gradient is the observed one.

    Args:
        config: Method, network, data set and seed; the rest of it plays no part. The search needs second
            derivatives, so take a network with smooth activations, such as `lenet_dlg`. With ReLU it mostly
            fails, which says nothing about the method.
        images: How many training images are attacked, at least 1.
        iterations: Iterations of L-BFGS for each start, at least 1.
        restarts: Starts for each image, at least 1.

    Returns:
        Metric → number, such as "mse" (median over the images, 0 is the image itself), "psnr", "recognised"
        (share of images with an error below 0.03) and "label attack" (share of right labels).

    Raises:
        UsageError: A name does not exist, the data are no images, or the method does not make exactly one
            step on one image.

    Example:
        >>> import raffed
        >>> from raffed.attacks.own_leakage import leakage
        >>> config = raffed.RunConfig(method="fedavg", model=raffed.Model("lenet_dlg"))
        >>> leakage(config, images=1)["recognised"]  # doctest: +SKIP
        1.0
    """
    for what, value in (("images", images), ("iterations", iterations), ("restarts", restarts)):
        check_range(what, value, 1, 100_000)
    data = load_dataset(config.data.dataset, config.data.root)
    if data.x.ndim != 4:
        raise UsageError(f"{config.data.dataset} holds no images; leakage is measured on images")
    model = model_name(config.model.name)
    named = method_name(config.method)
    setting = Setting("own", named, config.args, model=model, model_args=network_args(config))
    chosen = chosen_images(torch.from_numpy(data.y), images, config.seed)
    transform, _ = data.transform_in("plain")
    x = prepare_inputs(data.x[chosen], transform, data.max_value)
    effort = Effort(iterations=iterations, restarts=restarts)
    found = [
        attack(setting, image, int(data.y[place]), data.num_classes, number, config.seed, effort)
        for number, (image, place) in enumerate(zip(x, chosen, strict=True))
    ]
    return summary(found, [mark for mark in MARKS if mark <= iterations])


__all__ = ["leakage"]
