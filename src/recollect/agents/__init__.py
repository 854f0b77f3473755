"""Agents: ways of reading a text, remembering it and answering from the memory.

Each file but those below is one agent, a frozen dataclass with `async run(task, chats, memory)`.
`base` is the protocol and `function` makes an agent of a user's own function; `reading`, `tags` and
`prompts` are shared; `named` lists the agents of `recollect eval --agents`.
"""
