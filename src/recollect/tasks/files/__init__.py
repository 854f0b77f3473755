"""How tasks are stored: tables, JSON lines, manifests, and your own files as tasks."""
