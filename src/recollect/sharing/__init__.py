"""The same memory for other programs: tools, an MCP server, a store for LangGraph."""
