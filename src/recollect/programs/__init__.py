"""Programs: the small language in which a model reads a text, and what it may cost.

Nothing of a program is handed to Python: it is parsed, checked and interpreted here. Knows nothing
of models, chats or tasks.
"""
