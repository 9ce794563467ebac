"""Tests as specification: a name is a sentence that can be false, a number comes from maths or from
docs/papers.
"""
