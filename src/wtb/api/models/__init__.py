"""Requests and answers of the API, one module a noun."""
