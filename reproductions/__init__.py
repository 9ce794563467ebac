"""What is reproduced with raffed: papers, tables that others printed, the zoo of all methods, their pages.

Everything here uses raffed as any user can. What does not yet is listed in
tests/contract/test_what_reproductions_import.py.
"""

if __name__ == "reproductions":  # Imported by its folder in a checkout: both names are one module.
    import importlib
    import sys

    sys.modules[__name__] = importlib.import_module("raffed.reproductions")

# Paper → the module whose ITEMS are its tables and figures. The entry point `raffed.tables` names this
TABLES = {
    paper: f"{__name__}.{paper}.items" for paper in ("fedmr", "map", "gldp", "mpfedcon", "zoo", "checker")
}
