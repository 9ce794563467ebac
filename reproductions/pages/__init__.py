"""The commands that pack records of runs, and write pages and findings from them."""
