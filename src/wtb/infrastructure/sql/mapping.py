"""Mapping: turns rows that no hash covers into values of the domain."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from wtb.domain.errors import DamagedData

Value = TypeVar("Value")


def mapping(noun: str) -> Callable[[Callable[[Any], Value]], Callable[[Any], Value]]:
    """Make a row-mapping function name the row that it cannot read; the first column is the id."""

    def decorate(build: Callable[[Any], Value]) -> Callable[[Any], Value]:
        @wraps(build)
        def checked(row: Any) -> Value:
            try:
                return build(row)
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise DamagedData(f"{noun} {row[0]!r} is damaged: {type(error).__name__}: {error}") from error

        return checked

    return decorate
