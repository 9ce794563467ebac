"""Data sets, the preparation of their images, and their division among clients. Importing this loads
nothing.
"""
