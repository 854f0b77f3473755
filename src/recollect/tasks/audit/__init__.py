"""Does a family leak its answers? Rules that do not read the question, beside a guess."""
