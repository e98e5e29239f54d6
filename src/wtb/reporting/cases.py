"""The cases of a report: the first ones as a table, and all of them as data to browse."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from wtb.domain.display import counted
from wtb.domain.evaluation import Metric
from wtb.reporting.content import CaseScores, Report, Row
from wtb.reporting.markup import Markup, element, with_code

SHOWN_CASES = 30
FEW_COLUMNS = 12
MOST_TEXT = 4_000_000
"""The most characters of all inputs and answers in the file. If there are more, each is cut, down to a minimum."""
SHORTEST_TEXT = 200
MOST_CELLS = 150_000
"""The most cells (cases × combinations × metrics): about two megabytes of scores and runs."""


def cases(report: Report) -> list[Markup]:
    """Return the score and the answer of each combination on each case."""
    scores = report.scores(report.case_metrics[0])
    embedded = _embedded(report, scores)
    left_out = len(scores.table.cases) - len(embedded)
    return [
        element("p", _note(report, scores), class_="note"),
        _controls(report),
        element("p", _count(scores), id="case-count", class_="note", aria_live="polite"),
        _legend(is_dense=len(report.rows) > FEW_COLUMNS),
        _table(report, scores),
        element("button", "Show more cases", type="button", id="case-more", hidden=""),
        *_left_out(left_out),
        _dialog(),
        element("script", _json(_data(report, embedded)), type="application/json", id="case-data"),
    ]


def _note(report: Report, scores: CaseScores) -> str:
    if len(report.rows) == 1:
        return "The score of each case. Click a case to see its input, the expected value and the answer."
    if not scores.different:
        return f"On {report.case_metrics[0].name} no two combinations differ on any case."
    return (
        "The score of each combination on each case. Columns are numbered as in the results; B is the baseline. An "
        "error counts as the worst. Click a case to see its input, the expected value and all answers."
    )


def _count(scores: CaseScores) -> str:
    if len(scores.means) == 1:
        return f"{counted(len(scores.table.cases), 'case')}."
    shown = min(len(scores.different), SHOWN_CASES)
    first = f", the first {shown} shown" if shown < len(scores.different) else ""
    return (
        f"{counted(len(scores.different), 'case')} of {len(scores.table.cases):,} on which combinations differ on "
        f"{scores.table.metric.name}, the widest spread first{first}."
    )


def _controls(report: Report) -> Markup:
    metrics = [(str(at), metric.name) for at, metric in enumerate(report.case_metrics)]
    against = [("", "all"), *((str(at), f"B and {row.key} {row.name}") for at, row in enumerate(report.rows) if at)]
    orders = [
        ("spread", "widest spread"),
        ("losses", "largest loss"),
        ("gains", "largest gain"),
        ("case", "name of the case"),
    ]
    checked = "" if len(report.rows) > 1 else None
    only = element("input", type="checkbox", id="case-different", checked=checked)
    return element(
        "div",
        _choice("Metric", "case-metric", metrics),
        _choice("Combinations", "case-against", against),
        _choice("Order", "case-order", orders),
        element("label", "Find a case", element("input", type="search", id="case-find")),
        element("label", only, "Only where they differ", class_="check"),
        id="case-controls",
        class_="controls",
        hidden="",
    )


def _choice(title: str, id: str, options: Sequence[tuple[str, str]]) -> Markup:
    choices = [element("option", text, value=value) for value, text in options]
    return element("label", title, element("select", *choices, id=id))


def _legend(*, is_dense: bool) -> Markup:
    marks = [element("span", "× error"), element("span", "· no score")] if is_dense else []
    ramp = element("span", "worst", element("span", class_="ramp"), "best")
    return element("div", ramp, *marks, class_="legend")


def _table(report: Report, scores: CaseScores) -> Markup:
    heads = [element("th", row.key, scope="col", title=row.name) for row in report.rows]
    head = element("thead", element("tr", element("th", "Case", scope="col"), *heads))
    body = [
        element("tr", element("th", case, scope="row"), *(_cell(report, scores, row, case) for row in report.rows))
        for case in (scores.different if len(report.rows) > 1 else scores.table.cases)[:SHOWN_CASES]
    ]
    kind = "cases dense" if len(report.rows) > FEW_COLUMNS else "cases"
    table = element("table", head, element("tbody", *body), id="case-table", class_=kind)
    return element("div", table, class_="wide", tabindex=0, role="region", aria_label="Scores by case")


def _cell(report: Report, scores: CaseScores, row: Row, case: str) -> Markup:
    quality, metric = scores.quality(row.name, case), scores.table.metric
    if scores.failed(row.name, case):
        return element("td", "error", class_="error-cell", title=f"{case}, {row.key} {row.name}: error")
    text = report.figures(metric).number(scores.means[row.name].get(case))
    if quality is None:
        return element("td", text, class_="no-score", title=f"{case}, {row.key} {row.name}: no score")
    return element(
        "td",
        text,
        style=f"--quality:{round(6 + 94 * quality)}%",
        title=f"{case}, {row.key} {row.name}: {text}",
    )


def _left_out(number: int) -> list[Markup]:
    text = f"{counted(number, 'case')} with smaller differences are not in this file; wtb batch show lists them."
    return [element("p", text, class_="note")] if number > 0 else []


def _dialog() -> Markup:
    close = element("button", "Close", type="button", id="case-close")
    return element(
        "dialog",
        element("div", element("h3", "", id="case-title"), close, class_="dialog-head"),
        element(
            "p",
            "Words that the baseline's answer does not have are marked. ",
            with_code("`wtb show RUN` shows a run, and `wtb fork RUN` starts a new one from any of its steps."),
            class_="note",
        ),
        element("dl", "", id="case-texts"),
        element("div", element("table", "", id="case-scores"), class_="wide", tabindex=0),
        id="case-dialog",
        aria_labelledby="case-title",
    )


def _embedded(report: Report, scores: CaseScores) -> list[str]:
    """Return the cases that are in the file, in the order of the batch: all, or those that differ most."""
    room = max(SHOWN_CASES, MOST_CELLS // (len(report.rows) * len(report.case_metrics)))
    kept = set(sorted(scores.table.cases, key=lambda case: -scores.spread(case))[:room])
    return [case for case in scores.table.cases if case in kept]


def _data(report: Report, cases: Sequence[str]) -> dict[str, Any]:
    tables = [report.scores(metric) for metric in report.case_metrics]
    places = [(case, row.name) for case in cases for row in report.rows]
    return {
        "cases": list(cases),
        "names": [[row.key, row.name] for row in report.rows],
        "metrics": [_metric(report, metric, table) for metric, table in zip(report.case_metrics, tables, strict=True)],
        "scores": [[_short(table.means[name].get(case)) for case, name in places] for table in tables],
        "failed": [
            [at for at, (case, name) in enumerate(places) if table.failed(name, case)] for table in tables
        ],
        "runs": _runs(report, places),
        "texts": _texts(report, cases, places),
    }  # fmt: skip


def _metric(report: Report, metric: Metric, scores: CaseScores) -> dict[str, Any]:
    return {
        "name": metric.name,
        "decimals": max(0, min(report.figures(metric).decimals, 9)),
        "worst": scores.table.worst(),
        "best": scores.table.best(),
    }


def _runs(report: Report, places: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the ids of the runs behind each score, without their common prefix; a space separates repeats."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in sorted(report.jobs, key=lambda job: job.repeat):
        if job.run_id is not None:
            found[job.case_id, job.combination].append(job.run_id)
    prefix = _beginning([run for runs in found.values() for run in runs])
    return {
        "prefix": prefix,
        "ids": [" ".join(run[len(prefix) :] for run in found.get(place, ())) for place in places],
    }


def _texts(report: Report, cases: Sequence[str], places: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the inputs and expected values by case, and the answers by place; equal texts are in the file once."""
    known, sizes, numbers = report.result.case_texts, dict[str, int](), dict[str, int]()
    answers: dict[tuple[str, str], list[int]] = defaultdict(list)

    def number(text: str | None, size: int = 0) -> int | None:
        if text is None:
            return None
        sizes[text] = max(size, len(text))
        return numbers.setdefault(text, len(numbers))

    shown = set(cases)
    for job in sorted(report.jobs, key=lambda job: job.repeat):
        if job.case_id in shown and (at := number(job.output, job.output_size)) is not None:
            answers[job.case_id, job.combination].append(at)
    inputs, expected = ([number(getattr(known[case], name)) for case in cases] for name in ("input", "expected"))
    room = max(SHORTEST_TEXT, MOST_TEXT // max(1, len(numbers)))
    return {
        "all": [text[:room] for text in numbers],
        "sizes": {at: sizes[text] for text, at in numbers.items() if sizes[text] > min(room, len(text))},
        "inputs": inputs,
        "expected": expected,
        "answers": [answers.get((case, name), []) for case, name in places],
    }


def _beginning(ids: Sequence[str]) -> str:
    """Return the common prefix of all ids; it is shorter than each of them."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(min(ids, default=""), max(ids, default=""), strict=False))
    return "".join(character for character, _ in same)[:-1]


def _short(score: float | None) -> float | int | None:
    """Return a score in few characters: six digits, which is more than is shown."""
    if score is None:
        return None
    short = float(f"{score:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _json(data: Any) -> Markup:
    """Return data as JSON that no browser reads as markup, whatever it holds."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
