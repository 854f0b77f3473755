"""Models: a Hugging Face model loaded once for sampler and trainer, and `connect` for servers.

`attention` is the one attention function of all models; `trie/` packs rows that share a prefix.
"""
