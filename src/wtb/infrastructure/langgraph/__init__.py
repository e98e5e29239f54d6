"""LangGraph on our store: the saver, and what it is made of."""
