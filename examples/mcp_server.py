"""A small MCP server: a library that an agent may look things up in."""

from mcp.server import MCPServer

BOOKS = {"moon": "The moon is 384,400 km away.", "tide": "Tides follow the moon."}
server = MCPServer("library")


@server.tool()
def look_up(word: str) -> str:
    """Look a word up in the library."""
    return BOOKS.get(word.strip().lower(), f"There is nothing about {word}.")


if __name__ == "__main__":
    server.run()
