"""Mocks: node functions that return prepared or recorded results instead of computing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from wtb.domain.errors import InvalidInput


def mock(node: str, given: Any) -> Callable[..., Any]:
    """Return a function for a node: a callable as it is, or one that gives what is given at each visit."""
    if callable(given) and not _is_error(given):
        return given  # type: ignore[no-any-return]
    each_visit = isinstance(given, list)
    results = [_kept(node, result) for result in (given if each_visit else [given])]

    def mocked(state: Any, ctx: Any) -> Any:
        visit = ctx.run.visit if each_visit else 1
        if visit > len(results):
            raise InvalidInput(
                f"node {node!r} is at visit {visit}, but its mock has only {len(results)} results; give it more, or a "
                "mapping, which it returns at every visit"
            )
        result = results[visit - 1]
        if _is_error(result):
            raise result.with_traceback(None) if isinstance(result, BaseException) else result
        return deepcopy(result)

    return mocked


def _kept(node: str, result: Any) -> Any:
    """Return a result that whoever gave it cannot change any more."""
    if result is None or isinstance(result, Mapping):
        return deepcopy(result)
    if _is_error(result):
        return result
    raise InvalidInput(
        f"node {node!r} cannot be mocked with a {type(result).__name__}; give a mapping, a list of mappings "
        "(one a visit), an exception or a function"
    )


def _is_error(given: Any) -> bool:
    return isinstance(given, BaseException) or (isinstance(given, type) and issubclass(given, BaseException))
