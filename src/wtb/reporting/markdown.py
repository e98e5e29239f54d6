"""The report as Markdown: the answer, the matrix and the failures, fit for a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import accumulate

from wtb.batch_results import JobResult
from wtb.domain.display import counted
from wtb.domain.evaluation import Direction, Metric
from wtb.domain.printable import printable
from wtb.domain.statistics.verdicts import Finding
from wtb.reporting.content import Report, Row, Trouble
from wtb.reporting.numbers import NumberFormat

SHOWN_ROWS = 6
MOST_CHARACTERS = 40_000
"""The most characters of folded rows: a comment on GitHub can have 65,536."""
MOST_TROUBLES = 10
_LONGEST_ERROR = 160
MOST_ANSWERS = 5
_LONGEST_ANSWER = 120
_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#])")
_CALL = re.compile(r"@(?=[A-Za-z])")

_NOTE = (
    "Mean over the cases (95 % interval), and the verdict against the baseline (B) with the difference. Compared case "
    "by case. “No evidence” is not “the same”."
)


def to_markdown(report: Report) -> str:
    """Return the report for a pull request."""
    answer, rows = report.answer, [_row(report, row) for row in report.rows]
    parts = [f"## {_plain(report.title)}", f"**{_plain(answer.headline)}** {_plain(answer.detail)}".rstrip()]
    parts += [
        _table(report, rows[:SHOWN_ROWS]),
        *_more(report, rows[SHOWN_ROWS:]),
        *_effects(report),
        *_front(report),
        *_answers(report),
        *_failures(report),
    ]
    facts = " · ".join(f"{name}: {_plain(value)}" for name, value in report.facts.items())
    note = " ".join([_NOTE, *map(_plain, report.notes)])
    return "\n\n".join([*parts, note, f"<sub>{facts}</sub>"]) + "\n"


def _more(report: Report, rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    sizes = accumulate(len(row) for row in rows)
    kept = [row for row, size in zip(rows, sizes, strict=True) if size <= MOST_CHARACTERS]
    left_out = len(rows) - len(kept)
    rest = f"\n\n{counted(left_out, 'other combination')} left out; the HTML report has all." if left_out else ""
    return [_folded(counted(len(rows), "more combination"), _table(report, kept) + rest)]


def _table(report: Report, rows: Sequence[str]) -> str:
    heads = ["#", "Combination", *(_head(metric) for metric in report.metrics)]
    return "\n".join([_line(heads), _line(["---"] * len(heads)), *rows])


def _row(report: Report, row: Row) -> str:
    return _line([row.key, _plain(row.name), *(_cell(report, row, metric) for metric in report.metrics)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(metric: Metric) -> str:
    return f"{_plain(metric.name)} {'↑' if metric.direction is Direction.HIGHER else '↓'}"


def _cell(report: Report, row: Row, metric: Metric) -> str:
    summary, figures = row.summaries[metric.name], report.figures(metric)
    lost = [row.unscored(metric.name)] if row.unscored(metric.name) else []
    if summary.mean is None:
        return ", ".join(["no scores", *lost])
    mean = f"{figures.number(summary.mean)}{figures.interval(summary.interval, ' ({})')}"
    text = ", ".join([*_verdict(row, metric, figures), *lost])
    return f"{mean}<br>{text}" if text else mean


def _verdict(row: Row, metric: Metric, figures: NumberFormat) -> list[str]:
    if row.is_baseline:
        return []
    finding = row.finding(metric.name)
    if not finding:
        return ["not comparable"]
    word = f"{finding} {figures.change(row.verdicts[metric.name].comparison.difference)}"
    return [word if finding == Finding.NO_EVIDENCE else f"**{word}**"]


def _effects(report: Report) -> list[str]:
    """Say which node matters for the primary metric."""
    return [_with_code(found.sentence(report.prices)) for found in report.effects[:1]]


def _with_code(text: str) -> str:
    """Return a text in which words between backticks stay code, and Markdown leaves everything else as it is."""
    words = [" ".join(part.split()) if at % 2 else part for at, part in enumerate(text.split("`"))]
    return "".join(f"`{word}`" if at % 2 and word else _outside_code(word) for at, word in enumerate(words))


def _front(report: Report) -> list[str]:
    front = report.front
    if front is None or len(report.rows) < 2:
        return []
    keys = ", ".join(row.key for row in report.rows if row.name in front.names)
    return [f"Pareto front of {_plain(front.quality.name)} and {_plain(front.price.name)}: {keys}."]


def _answers(report: Report) -> list[str]:
    """Show the answers of the baseline and the best on a few cases, starting where combinations differ most."""
    scores, texts = report.scores(report.case_metrics[0]), report.result.case_texts
    shown = (*scores.different, *(case for case in scores.table.cases if case not in scores.different))[:MOST_ANSWERS]
    rows = report.rows[:2]
    given = {(job.case_id, job.combination): job for job in reversed(report.jobs)}
    lines = []
    for case in shown:
        jobs = [given.get((case, row.name)) for row in rows]
        row = [texts[case].input, texts[case].expected, *(job and _answer(job) for job in jobs)]
        lines.append(_line([_plain(case), *(_plain(_short(text or "")) for text in row)]))
    if not any(job.output for job in report.jobs):
        return []
    heads = ["Case", "Input", "Expected", *(f"Answer of {row.key}" for row in rows)]
    title = f"Answers on {counted(len(shown), 'case')}" + (" that differ most" if scores.different else "")
    return [_folded(title, "\n".join([_line(heads), _line(["---"] * len(heads)), *lines]))]


def _answer(job: JobResult) -> str | None:
    return f"failed: {job.error['message']}" if job.error else job.output


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_ANSWER else f"{text[:_LONGEST_ANSWER]}…"


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
    """Return a text that Markdown shows as it is, on one line; a name after an @ notifies nobody."""
    return _outside_code(printable(" ".join(text.split())))


def _outside_code(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", html.escape(text, quote=False))
    return _CALL.sub("@\N{ZERO WIDTH SPACE}", escaped)
