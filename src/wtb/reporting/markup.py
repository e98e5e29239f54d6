"""Markup: text that is already HTML. All other text in an element is escaped."""

from __future__ import annotations

import html
from typing import Any

_VOID = {"input"}


class Markup(str):
    """Text that is not escaped. Only WTB makes it, never from a user's text."""

    __slots__ = ()


def element(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """Return an element. `class_` becomes class, `stroke_width` stroke-width; an attribute that is None is left out."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{joined(*children)}</{name}>")


def with_code(text: str) -> Markup:
    """Return a text in which each word between backticks is code."""
    return joined(*(element("code", part) if at % 2 else part for at, part in enumerate(text.split("`"))))


def joined(*children: Any) -> Markup:
    """Return the children one after the other, each escaped unless it is markup."""
    return Markup("".join(child if isinstance(child, Markup) else html.escape(str(child)) for child in children))
