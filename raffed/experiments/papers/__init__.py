"""One module a paper: ITEMS, its tables and figures as the experiments sheets describe them."""
