"""The digest of a function's own code, to notice that two processes have loaded different versions of a file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from inspect import unwrap
from types import CodeType
from typing import Any


def code_digest(function: Callable[..., Any]) -> str:
    """Return the digest, which names the version of Python: another version compiles the same text differently."""
    code = getattr(unwrap(getattr(function, "__func__", function)), "__code__", None)
    digest = hashlib.sha256()
    for token in _tokens(code) if isinstance(code, CodeType) else ():
        digest.update(token.encode("utf-8", "surrogatepass") + b"\0")
    return f"{sys.version_info.major}.{sys.version_info.minor} {digest.hexdigest()}"


def is_same_code(one: str, other: str) -> bool:
    """Whether two digests are of the same code. Those of two versions of Python cannot be compared."""
    return one == other or one.partition(" ")[0] != other.partition(" ")[0]


def _tokens(code: CodeType) -> Iterator[str]:
    yield code.co_qualname
    yield code.co_code.hex()
    yield ",".join((*code.co_names, *code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _tokens(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))  # its order differs from process to process
        else:
            yield repr(constant)
