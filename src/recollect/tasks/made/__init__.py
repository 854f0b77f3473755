"""Tasks made from a seed, without any download: recall, ledger and world."""
