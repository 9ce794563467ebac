"""Networks of our own."""
