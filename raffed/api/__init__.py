"""What the command line does, as functions: compare, tune, report, reproduce and verify.

The commands of `raffed/cli/` parse what was typed, call these modules and show the outcome. `raffed.compare`
and the others are for scripts and notebooks. Both do the same work, because it is written here.
"""
