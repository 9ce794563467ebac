"""Data of our own: wines from three sites."""
