"""raffed.testing: the contract finds what is wrong, and says so."""
