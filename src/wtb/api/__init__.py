"""The HTTP API: read through queries, write through services, answer in JSON. User code is only run by workers."""
