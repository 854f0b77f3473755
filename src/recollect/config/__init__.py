"""Settings: frozen dataclasses, presets of them, and how they are read, stored and overridden.

`train` is the whole of a run's settings, `engine`, `rollout` and `roles` are its sections, and
`presets` has the named starting points. Nothing here imports torch.
"""
