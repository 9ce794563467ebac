"""Data sets, what is done to their images, and how they are divided among clients. Importing this loads
nothing.
"""
