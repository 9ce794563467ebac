"""What is reproduced with raffed: papers, tables that others printed, the zoo of all methods, their pages.

Everything here uses raffed as any user can (tests/contract/test_reproductions.py lists what does not yet).
"""

if __name__ == "reproductions":  # Imported by its folder in a checkout: both names are one module.
    import importlib
    import sys

    sys.modules[__name__] = importlib.import_module("raffed.reproductions")
