"""Execute an author's main file without any hook, and print the digest of the server's state as `train` ends.

The interpreter's profiler sees when `train` of a server leaves its loop, which is when it calls a function
that saves, or returns. No name of the author's is replaced.

With a number above 0 as BEGINNING, the digest is taken as that round begins, if there is one.

    python unhooked.py DRIVER ROOT MAIN SERVERS SEED BEGINNING -- FLAGS
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

cut = sys.argv.index("--")
driver_file, root, main, servers, seed, beginning = sys.argv[1:cut]
flags = sys.argv[cut + 1 :]
spec = importlib.util.spec_from_file_location("driver", driver_file)
assert spec is not None
assert spec.loader is not None
driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driver)
found: list[str] = []
begun: list[str] = []


def profile(frame, event, arg):
    if found or event not in ("call", "return"):
        return
    code, server = frame.f_code, frame.f_locals.get("self")
    if not type(server).__module__.startswith(f"{servers}."):
        return
    if not hasattr(server, "clients") and not hasattr(server, "datasets"):
        return
    if event == "call" and code.co_name == "_activate_clients_":
        begun.append(code.co_name)
    saves = code.co_name in ("save_results", "save_global_model", "_save_results_")
    ends = (event == "call" and saves) or (event == "return" and code.co_name == "train")
    if ends or len(begun) == int(beginning or 0) > 0:
        sys.setprofile(None)
        found.append(driver.digest(server, Path(root)))


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
print(f"digest {found[0]}", file=sys.__stdout__)
