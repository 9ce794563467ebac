"""What is compared letter by letter: the wire table. `python -m tests.golden.regenerate` writes it anew."""
