"""The saver: stores LangGraph's checkpoints and pending writes in our storage."""
