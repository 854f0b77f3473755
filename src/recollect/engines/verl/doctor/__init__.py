"""`recollect doctor --engine verl`: what the nodes of a cluster have, and known traps."""
