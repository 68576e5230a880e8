"""Tools of MCP servers; `sdk`, `stdio` and `http` are the only home of the `mcp` package."""
