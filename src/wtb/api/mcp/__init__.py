"""The Model Context Protocol for editors: tools that ask the routes of the API, and ask the person before a change."""
