"""The embedded engine's samplers: `dense` for a CPU, `paged` for a GPU; `choice` picks one."""
