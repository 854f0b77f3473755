"""Two-stage training: train one role against the other one fixed, then swap, as one command."""
