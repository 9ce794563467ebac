"""Networks of one's own: any `nn.Module` that returns class scores.

- `wrapping.py`: a module as raffed's network, and back
- `factories.py`: from a name to the module: the user's own code, or torchvision's
- `laws.py`: what such a network must keep to, checked before any work
"""

GROUP = "raffed.models"  # of entry points
TORCHVISION = "torchvision:"  # what the names of torchvision's networks begin with
