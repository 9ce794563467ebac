"""One module a paper: ITEMS, its tables and figures as docs/papers describes them."""
