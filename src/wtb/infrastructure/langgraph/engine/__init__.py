"""The engine: runs a LangGraph graph as a workflow of WTB, node by node."""
