"""Places of a state, as tagged JSON."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel
from wtb.api.models.figures import PlainText, plain
from wtb.application.queries.state_parts import StateChild, StatePart
from wtb.application.queries.state_search import StateMatch


class StateChildAnswer(AnswerModel):
    """A part of a place in a state."""

    key: Any = Field(description="A key, or a position in a list; append it to the path to look inside.")
    kind: str = Field(examples=["list"])
    count: int | None = Field(description="How many parts or characters it has.")
    value: Any = Field(description="The value as tagged JSON, if it is small.")
    preview: PlainText | None = Field(description="The beginning of a value that is too large to be here whole.")

    @classmethod
    def of(cls, child: StateChild) -> Self:
        """Return a child as an answer."""
        return cls(key=child.key, kind=child.kind, count=child.count, value=child.value, preview=child.preview)


class StateAnswer(AnswerModel):
    """One place of a state.

    A small value is here whole, as tagged JSON: plain JSON values as they are, and everything else as an object with
    the key `$type`. Of a large one, `children` has a page of its parts.
    """

    path: list[Any] = Field(examples=[["messages", 3]])
    kind: str = Field(examples=["dict"])
    count: int | None
    is_whole: bool = Field(description="Whether `value` is the whole value; otherwise look at `children`.")
    value: Any
    preview: PlainText | None
    children: list[StateChildAnswer]
    next: str | None = Field(description="The `cursor` of the next page of children.")

    @classmethod
    def of(cls, part: StatePart) -> Self:
        """Return a place as an answer."""
        return cls(
            path=list(part.path),
            kind=part.kind,
            count=part.count,
            is_whole=part.is_whole,
            value=part.value,
            preview=part.preview,
            children=[StateChildAnswer.of(child) for child in part.children],
            next=part.next,
        )


class StateMatchAnswer(AnswerModel):
    """A place of a state that holds a text."""

    path: list[str | int] = Field(examples=[["messages", 3, "content"]])
    where: Literal["key", "value"] = Field(description="Whether the last key of the path holds it, or the value.")
    excerpt: PlainText = Field(description="The text with what stands around it.")

    @classmethod
    def of(cls, match: StateMatch) -> Self:
        """Return a match as an answer."""
        return cls(path=[plain(key) for key in match.path], where=match.where, excerpt=match.excerpt)


class StateMatchesAnswer(AnswerModel):
    """The first places of a state that hold a text, in the order of the state."""

    items: list[StateMatchAnswer]
    is_complete: bool = Field(description="Whether these are all.")
