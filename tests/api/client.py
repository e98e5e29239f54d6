"""The client of the tests: Starlette's, imported once without the advice that it gives about its own library."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette recommends a successor of httpx, which we do not need
    from starlette.testclient import TestClient

TestClient.__test__ = False

ADDRESS = "http://127.0.0.1:8383"
"""Where the server of the tests believes to be."""

__all__ = ["ADDRESS", "TestClient"]
