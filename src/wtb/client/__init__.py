"""Client and AsyncClient: a server of WTB, used from Python with the verbs of a Bench."""

from wtb.client.clients import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
