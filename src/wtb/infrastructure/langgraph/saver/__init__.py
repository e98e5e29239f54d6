"""The saver: LangGraph's checkpoints and pending writes on our store."""
