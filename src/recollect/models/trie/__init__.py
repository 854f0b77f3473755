"""Prefix tries: rows of tokens that share what they have in common, and attention over them."""
