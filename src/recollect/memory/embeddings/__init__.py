"""Vectors of memories: embedders in a folder or behind a server, and a cache of what they made."""
