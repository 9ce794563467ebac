"""One package for each paper. Its ITEMS are the paper's tables and figures, as docs/papers describes them."""
