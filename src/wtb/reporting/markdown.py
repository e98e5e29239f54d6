"""The report as Markdown: the answer, the matrix and the failures, fit for a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from wtb.domain.evaluation import Direction, Metric
from wtb.reporting.content import Report, Row, Trouble, counted

SHOWN_ROWS = 16
MOST_TROUBLES = 10
_LONGEST_ERROR = 160
_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#])")
_CALL = re.compile(r"@(?=[A-Za-z])")

_NOTE = (
    "Mean over the cases (95 % interval), and the verdict against the baseline with the difference. Compared case by "
    "case; verdicts are adjusted for all comparisons (Holm). “No evidence” is not “the same”."
)


def to_markdown(report: Report) -> str:
    """Return the report for a pull request."""
    shown, rest = report.rows[:SHOWN_ROWS], report.rows[SHOWN_ROWS:]
    parts = [f"## {_plain(report.title)}", f"**{_plain(str(report.answer))}**", _matrix(report, shown)]
    if rest:
        parts.append(_folded(counted(len(rest), "more combination"), _matrix(report, rest)))
    parts += [*_front(report), *_failures(report), _NOTE]
    parts.append(" · ".join(f"{name}: {_plain(value)}" for name, value in report.facts.items()))
    return "\n\n".join(parts) + "\n"


def _matrix(report: Report, rows: Sequence[Row]) -> str:
    heads = ["#", "Combination", *(_head(metric) for metric in report.metrics)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[row.key, _plain(row.name), *(_cell(report, row, metric) for metric in report.metrics)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _head(metric: Metric) -> str:
    return f"{_plain(metric.name)} {'↑' if metric.direction is Direction.HIGHER else '↓'}"


def _cell(report: Report, row: Row, metric: Metric) -> str:
    summary, figures = row.summaries[metric.name], report.figures(metric)
    lost = [row.unscored(metric.name)] if row.unscored(metric.name) else []
    if summary.mean is None:
        return ", ".join(["no scores", *lost])
    finding = row.finding(metric.name) or "not comparable"
    if metric.name in row.verdicts:
        finding = f"{finding} {figures.change(row.verdicts[metric.name].comparison.difference)}"
    word = f"**{finding}**" if finding.startswith(("better", "worse")) else finding
    told = ", ".join([word, *lost])
    return f"{figures.number(summary.mean)}{figures.interval(summary.interval, ' ({})')} {told}"


def _front(report: Report) -> list[str]:
    front = report.front
    if front is None or len(report.rows) < 2:
        return []
    names = "; ".join(_plain(row.name) for row in report.rows if row.name in front.names)
    return [f"Pareto front of {_plain(front.quality.name)} and {_plain(front.price.name)}: {names}."]


def _failures(report: Report) -> list[str]:
    troubles = report.troubles
    if not troubles:
        return []
    lines = [_failure(report, trouble) for trouble in troubles[:MOST_TROUBLES]]
    if len(troubles) > MOST_TROUBLES:
        lines.append(f"- and {counted(len(troubles) - MOST_TROUBLES, 'other error')}")
    return [_folded(counted(report.failures, "failure"), "\n".join(lines))]


def _failure(report: Report, trouble: Trouble) -> str:
    first = trouble.jobs[0]
    more = f", and {len(trouble.jobs) - 1:,} more" if trouble.jobs[1:] else ""
    place = f"{_plain(report.place(first))}, run {_plain(first.run_id or 'none')}{more}"
    return f"- {_plain(trouble.what[:_LONGEST_ERROR])}: {place}"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line; a name after an @ is not called."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    return _CALL.sub("@\N{ZERO WIDTH SPACE}", escaped)
