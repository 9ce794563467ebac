"""Load the weights of a run into our own class, without raffed."""

from __future__ import annotations

import sys

import torch

from netlab.models import SmallCNN

model = SmallCNN(in_shape=(1, 8, 8), num_classes=10, width=8)
model.load_state_dict(torch.load(sys.argv[1], weights_only=True))
model.eval()
print("class of a black image:", int(model(torch.zeros(1, 1, 8, 8)).argmax()))
