"""Services of the server: who may call it, and what it does for its callers."""
