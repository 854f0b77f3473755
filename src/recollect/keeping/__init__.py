"""What an agent has read, kept on disk: it can be asked again, read on, and made to forget."""
