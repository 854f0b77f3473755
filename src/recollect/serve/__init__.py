"""`recollect serve`: an OpenAI-compatible server over the embedded engine."""
