"""The verbs of the command line, and the same from Python (`api`): what a person starts.

`verbs` lists them. Each verb has a file or folder of its name; `eval` is `evaluate` (agents side by
side) and `held_out` (the model of a run).
"""
