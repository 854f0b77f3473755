"""Chats: contexts that grow token by token, and the tools a model may call in them.

`chat` opens contexts and records turns, `rendering` makes tokens of messages, `tools` defines
tools, `tool_calls` parses the calls in a reply, and `tool_loop` answers them.
"""
