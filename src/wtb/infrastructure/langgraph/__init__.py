"""The LangGraph adapter: the saver, the engine, and the values and lists that both store."""
