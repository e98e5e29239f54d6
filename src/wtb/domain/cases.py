"""Case: one input and its expected result; faulty cases are reported by place and field, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wtb.domain.errors import InvalidInput
from wtb.domain.values import evolve

_MOST = 20
"""The most faults that one message names."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input with its expected result; `place` says where it was read, for messages.

    Cases of one `cluster` are not independent, such as questions about one document: they are averaged, and count as
    one.
    """

    id: str
    input: Mapping[str, Any]
    expected: Any = None
    tags: tuple[str, ...] = ()
    cluster: str | None = None
    place: str = field(default="case", compare=False)


def cases_of(rows: Iterable[tuple[str, Any]]) -> tuple[Case, ...]:
    """Read cases from plain data, each with its place; report all faults at once, by place and field."""
    faults: list[str] = []
    cases: dict[str, Case] = {}
    for place, row in rows:
        found = list(_faults(place, row))
        if not found:
            case = _case(place, row)
            if case.id in cases:
                found = [f"{place} has the same id {case.id!r} as {cases[case.id].place}"]
            cases.setdefault(case.id, case)
        faults += found
    if not cases and not faults:
        faults.append("there are no cases")
    raise_faults(faults)
    return tuple(cases.values())


def _faults(place: str, row: Any) -> Iterator[str]:
    if isinstance(row, Case):
        return
    if not isinstance(row, Mapping):
        yield f"{place} is {row!r}, not a mapping with id and input"
        return
    unknown = row.keys() - {"id", "input", "expected", "tags", "cluster"}
    if unknown:
        names = ", ".join(sorted(map(str, unknown)))
        yield f"{place} has an unknown field {names}; the fields are id, input, expected, tags and cluster"
    case_id, tags, cluster = row.get("id"), row.get("tags"), row.get("cluster")
    if case_id is None or case_id == "":
        yield f"{place} has no id"
    elif not isinstance(case_id, str):
        yield f"{place}: id must be a text, not {case_id!r}"
    if "input" not in row:
        yield f"{place} has no input"
    elif not isinstance(row["input"], Mapping):
        yield f"{place}: input must be a mapping of keys to values, not {row['input']!r}"
    if tags is not None and not (isinstance(tags, list | tuple) and all(isinstance(tag, str) for tag in tags)):
        yield f"{place}: tags must be a list of texts, not {tags!r}"
    if cluster is not None and not isinstance(cluster, str):
        yield f"{place}: cluster must be a text, not {cluster!r}"


def _case(place: str, row: Any) -> Case:
    if isinstance(row, Case):
        return evolve(row, place=place if row.place == "case" else row.place)
    tags = tuple(row.get("tags") or ())
    return Case(
        id=row["id"],
        input=dict(row["input"]),
        expected=row.get("expected"),
        tags=tags,
        cluster=row.get("cluster") or None,
        place=place,
    )


def clustered(cases: Sequence[Case], cluster: str | Callable[[Case], Any] | None) -> tuple[Case, ...]:
    """Return the cases with their clusters: the ones that they name, or the ones from `cluster`.

    `cluster` is a function of the case, or a key of its input. If it gives None, the case belongs to no cluster.
    """
    if cluster is None:
        return tuple(cases)
    found = []
    for case in cases:
        if isinstance(cluster, str) and cluster not in case.input:
            raise InvalidInput(f"cluster={cluster!r}: {case.place} ({case.id}) has no {cluster!r} in its input")
        name = case.input[cluster] if isinstance(cluster, str) else cluster(case)
        found.append(evolve(case, cluster=None if name is None else str(name)))
    return tuple(found)


def raise_faults(faults: Sequence[str]) -> None:
    """Raise InvalidInput if there are faults; name the first ones."""
    if faults:
        raise InvalidInput("; ".join(faults[:_MOST]) + (f"; and {len(faults) - _MOST} more" if faults[_MOST:] else ""))
