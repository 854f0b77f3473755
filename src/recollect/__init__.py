"""Recollect: train and evaluate LLM memory agents with reinforcement learning."""

__version__: str


def __getattr__(name: str) -> str:
    """Read the version when it is asked for: finding it takes longer than importing this."""
    if name == "__version__":
        from recollect.distribution import version

        return version()
    raise AttributeError(f"module 'recollect' has no attribute {name!r}")
