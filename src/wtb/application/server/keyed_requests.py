"""Requests with an Idempotency-Key: sent again within a day, they get what the first one made."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from wtb.domain.commands import AcceptedRequest
from wtb.domain.errors import IdempotencyMismatch, InvalidInput
from wtb.domain.ports import UnitOfWork

_LONGEST_KEY = 200


def digest_of_request(*parts: Any) -> bytes:
    """Return a digest of everything that a request asks for, given as plain JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


def find_request(uow: UnitOfWork, caller: str, key: str, digest: bytes, now: datetime) -> AcceptedRequest | None:
    """Return the earlier request of a caller with this key; raise IdempotencyMismatch if it asked for something else.

    Until the unit of work ends, nobody else finds out about this key.
    """
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        raise InvalidInput(f"an Idempotency-Key has 1 to {_LONGEST_KEY} printable characters")
    known = uow.commands.find_request(caller, key)
    if known is None or known.is_forgotten(now):
        return None
    if known.digest != digest:
        raise IdempotencyMismatch(
            f"the Idempotency-Key {known.key!r} was used for another request; use a new key for a new request"
        )
    return known
