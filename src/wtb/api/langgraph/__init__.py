"""The part of LangGraph's server protocol that its SDKs and chat front ends use, over the threads of the store."""
