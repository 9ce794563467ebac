"""An artefact for reviewers: `raffed bundle` writes results into a zip, `raffed replay` executes them again.

A bundle holds what is needed to compute the same numbers once more, and neither data nor anything that names
a person, a machine or a login.
"""
