"""Body epochs of FedRep: 1 and 5 beside 10 head epochs, the two settings of the official scripts
(lgcollins/FedRep).
"""

from __future__ import annotations

SPACE = {"body_epochs": [1.0, 5.0]}
