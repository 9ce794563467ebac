"""Small convolutional networks for images of 8 x 8, with a max-pool, and with or without BatchNorm."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Two convolutions of 8 and 16 channels, a hidden layer of 512 and the classes.

    With 6 channels qemu 7.2 ends the process: torch's SGD without momentum reads the last 4 to 7 numbers of a
    tensor under a mask, from no address, which is allowed and which qemu does not know.
    """

    def __init__(self, num_classes: int, norm: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            *([nn.BatchNorm2d(8)] if norm else []),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 512),
            nn.ReLU(),
        )
        self.head = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(x))
        return scores


def chain(num_classes: int) -> nn.Sequential:
    """Return the same layers as an nn.Sequential, whose layers raffed's kernels may replace."""
    whole = SmallCNN(num_classes)
    return nn.Sequential(*whole.body, whole.head)
