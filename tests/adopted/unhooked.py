"""Execute an author's main file without any hook, and print the digest of the server after each round.

The interpreter's profiler sees when a server chooses the clients of the next round, and when its `train`
leaves the loop: it calls a function that saves, or returns. No name of the author's is replaced.

    python unhooked.py DRIVER ROOT MAIN SERVERS SEED -- FLAGS
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import torch

CHOOSE = ("select_clients", "_activate_clients_", "select")
SAVE = ("save_results", "save_global_model", "_save_results_")
cut = sys.argv.index("--")
driver_file, root, main, servers, seed = sys.argv[1:cut]
flags = sys.argv[cut + 1 :]
spec = importlib.util.spec_from_file_location("driver", driver_file)
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)
begun: list[str] = []


def profile(frame, event, arg):
    name = frame.f_code.co_name
    begins = event == "call" and name in CHOOSE
    ends = (event == "call" and name in SAVE) or (event == "return" and name == "train")
    if not begins and not ends:
        return
    server = frame.f_locals.get("self")
    if not type(server).__module__.startswith(f"{servers}."):
        return
    if not hasattr(server, "clients") and not hasattr(server, "datasets"):
        return
    if begun or ends:
        print(f"digest {driver.digest(server, Path(root))}", file=sys.__stdout__)
    begun.append(name)
    if ends:
        sys.setprofile(None)


path = Path(root, main)
os.chdir(path.parent)
sys.path[0], sys.argv, sys.dont_write_bytecode = str(path.parent), [str(path), *flags], True
torch.set_num_threads(1)
random.seed(int(seed))
np.random.seed(int(seed))  # noqa: NPY002
torch.manual_seed(int(seed))
sys.setprofile(profile)
with contextlib.suppress(ZeroDivisionError):  # some engines print an average that leaves out the first round
    runpy.run_path(str(path), run_name="__main__")
