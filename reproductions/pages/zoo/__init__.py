"""The page on a table whose rows were tuned: what gains, what does not, and what it costs."""
