"""Released code of authors, unchanged, beside raffed's own methods: what it does is read, not executed."""
