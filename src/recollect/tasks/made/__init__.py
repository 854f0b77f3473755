"""Tasks made from a seed, without any download: recall, ledger, world and chronicle."""
