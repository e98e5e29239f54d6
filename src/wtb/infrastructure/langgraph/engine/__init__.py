"""The engine: a LangGraph graph as a workflow of ours, run node by node."""
