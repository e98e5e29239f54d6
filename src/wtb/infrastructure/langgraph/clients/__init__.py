"""Threads as programs see them that talk to a LangGraph server."""
