"""s of FedETF: 1 (the official LeNet and ResNet), 10 (its CNN and VGG) and 30, the scale that FedNH's code
fixes. The paper has no grid.
"""

from __future__ import annotations

SPACE = {"scale": [1.0, 10.0, 30.0]}
