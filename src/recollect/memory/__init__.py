"""Memories: one text (`text`), a store of entries (`store`), or a bank of notes (`bank`).

A memory changes only through operations. In a store, `operations` plans an edit and refuses a wrong
one, `store` applies it, `edits` indexes it, and `search` finds entries in the base and the edits.
`tools` and `bank_tools` are what a model calls to do so.
"""
