"""Results of a batch: matrix, jobs, cases, comparison, effects and report."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from wtb.api.access import Viewer
from wtb.api.models.base import ListAnswer
from wtb.api.models.parameters import BatchName, Cursor, Limit
from wtb.api.models.results import (
    CaseAnswer,
    CompareRow,
    EffectRow,
    GridAnswer,
    GridRow,
    JobResultAnswer,
    MatrixAnswer,
    MetricAnswer,
    ParetoAnswer,
)
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.api.results import result_of
from wtb.application.queries.cursors import page_of_all
from wtb.domain.batch import JobStatus
from wtb.domain.errors import BatchNotFound, CaseNotFound, DamagedData, InvalidInput
from wtb.domain.evaluation import Errors
from wtb.domain.values import showing

if TYPE_CHECKING:
    from wtb.batch_results import BatchResult, JobResult

router = APIRouter(prefix="/api/v1/batches/{batch_id}", tags=["batches"])

_ONE = answers(BatchNotFound, InvalidInput, DamagedData)
_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)
"""A report is one file without a network. In a sandbox it has no origin, so it cannot use anybody's session."""

Tags = Annotated[list[str] | None, Query(alias="tag", description="Only cases that have one of these tags.")]
Metrics = Annotated[list[str] | None, Query(alias="metric", description="Only these metrics; without any, all.")]
ErrorsQuery = Annotated[
    Errors, Query(description="How a failed run counts: as the worst score, or not at all.", examples=["worst"])
]


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    MARKDOWN = "md"


@router.get(
    "/matrix", operation_id="batches_get_matrix", summary="Show the scores and verdicts of a batch", responses=_ONE
)
def get_matrix(parts: Parts, caller: Viewer, batch: BatchName, tag: Tags = None) -> MatrixAnswer:
    """Return one row per combination with its scores and its verdicts against the baseline, and what failed."""
    from wtb.reporting.content import Report

    with showing():
        result = result_of(parts, batch, tag or ())
        matrix = result.matrix
        return MatrixAnswer.of(result.overview(matrix), Report.of(result, matrix))


@router.get("/grid", operation_id="batches_get_grid", summary="Show all scores on one metric", responses=_ONE)
def get_grid(
    *,
    parts: Parts,
    caller: Viewer,
    batch: BatchName,
    metric: Annotated[str | None, Query(description="By default the primary one.", max_length=500)] = None,
    tag: Tags = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(description="The most cases of a page.", ge=1, le=10_000)] = 500,
) -> GridAnswer:
    """Return the scores of all combinations and repeats on a page of cases, in the order of the batch."""
    from wtb.batch_results.grid import grid_of

    with showing():
        result = result_of(parts, batch, tag or ())
        chosen = metric or result.primary
        table = result.table(chosen)
        rows = grid_of(result, chosen)
        page, next_cursor = page_of_all(rows, cursor, limit)
        return GridAnswer(
            metric=MetricAnswer.of(table.metric),
            worst=table.worst(),
            best=table.best(),
            combinations=result.combinations,
            repeats=result.batch.record.repeats,
            cases=len(rows),
            items=[GridRow.of(row) for row in page],
            next=next_cursor,
        )


@router.get("/results", operation_id="batches_list_results", summary="List the results of a batch", responses=_ONE)
def list_results(
    *,
    parts: Parts,
    caller: Viewer,
    batch: BatchName,
    combination: Annotated[str | None, Query(description="Only this combination.", max_length=500)] = None,
    case: Annotated[str | None, Query(description="Only this case.", max_length=500)] = None,
    tag: Tags = None,
    failed: Annotated[bool | None, Query(description="Only jobs that failed, or only others.")] = None,
    flaky: Annotated[bool, Query(description="Only cases on which repeats of a combination disagree.")] = False,
    different: Annotated[
        str | None,
        Query(
            description="Only cases on which combinations disagree on this metric, widest spread first.", max_length=500
        ),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ListAnswer[JobResultAnswer]:
    """Return a page of finished jobs, in the order of the batch."""
    with showing():
        result = result_of(parts, batch, tag or ())
        found = [
            job
            for job in result.results
            if combination in (None, job.combination)
            and case in (None, job.case_id)
            and (failed is None or failed is (job.status == JobStatus.FAILED))
        ]
        if flaky:
            pairs = {(each.case_id, each.combination) for each in result.flaky()}
            found = [job for job in found if (job.case_id, job.combination) in pairs]
        if different is not None:
            found = _different(result, different, found)
        page, next_cursor = page_of_all(tuple(found), cursor, limit)
    return ListAnswer(items=[JobResultAnswer.of(job) for job in page], next=next_cursor)


def _different(result: BatchResult, metric: str, jobs: list[JobResult]) -> list[JobResult]:
    rank = {case: number for number, case in enumerate(result.different(metric))}
    return sorted((job for job in jobs if job.case_id in rank), key=lambda job: rank[job.case_id])


@router.get(
    "/cases/{case:path}",
    operation_id="batches_get_case",
    summary="Show a case with all its results",
    responses=answers(BatchNotFound, CaseNotFound, DamagedData),
)
def get_case(
    parts: Parts, caller: Viewer, batch: BatchName, case: Annotated[str, Path(description="The id of a case.")]
) -> CaseAnswer:
    """Return the input and the expected value of a case, and the outputs of all combinations side by side."""
    with showing():
        result = result_of(parts, batch)
        if case not in result.cases:
            raise CaseNotFound(case[:200], f"batch {result.batch.name!r}")
        jobs = [job for job in result.results if job.case_id == case]
        return CaseAnswer.of(case, result.case_texts.get(case), result.clusters.get(case), jobs)


@router.get("/compare", operation_id="batches_compare", summary="Compare combinations case by case", responses=_ONE)
def compare(
    *,
    parts: Parts,
    caller: Viewer,
    batch: BatchName,
    before: Annotated[
        str | None,
        Query(
            description="Another batch, or `baseline/NAME`: compare each combination with the same one there.",
            max_length=500,
        ),
    ] = None,
    metric: Metrics = None,
    tag: Tags = None,
    errors: ErrorsQuery = Errors.WORST,
    max_errors: Annotated[int, Query(ge=0, description="More failed cases than this, and it is never better.")] = 0,
) -> ListAnswer[CompareRow]:
    """Return verdicts with intervals, as `wtb compare`. Better or worse is only said if chance is ruled out (5 %)."""
    with showing():
        result = result_of(parts, batch, tag or ())
        other = None if before is None else result_of(parts, before, tag or ())
        found = result.compare(*(metric or ()), errors=errors.value, max_errors=max_errors, before=other)
    return ListAnswer(items=[CompareRow.of(verdict) for verdict in found])


@router.get("/effects", operation_id="batches_list_effects", summary="Show which node matters", responses=_ONE)
def list_effects(
    *, parts: Parts, caller: Viewer, batch: BatchName, metric: Metrics = None, errors: ErrorsQuery = Errors.WORST
) -> ListAnswer[EffectRow]:
    """Return the effect of each variant, averaged over the variants of all other nodes, and of every two together."""
    with showing():
        result = result_of(parts, batch)
        found = [result.effects(each, errors=errors.value) for each in metric or result.metrics]
    return ListAnswer(items=[row for each in found for row in EffectRow.every(each)])


@router.get(
    "/pareto", operation_id="batches_get_pareto", summary="Show the combinations that none beats", responses=_ONE
)
def get_pareto(parts: Parts, caller: Viewer, batch: BatchName, metric: Metrics = None) -> ParetoAnswer:
    """Return the combinations that no other one is shown to beat on these metrics together."""
    with showing():
        result = result_of(parts, batch)
        chosen = list(metric or result.metrics)
        return ParetoAnswer(metrics=chosen, combinations=list(result.pareto(*chosen)))


_REPORT = {
    **_ONE,
    200: {
        "description": "The report.",
        "content": {"text/html": {"schema": {"type": "string"}}, "text/markdown": {"schema": {"type": "string"}}},
    },
}


@router.get(
    "/report",
    operation_id="batches_get_report",
    summary="Get the report of a batch",
    responses=_REPORT,
    response_class=Response,
)
def get_report(
    *,
    parts: Parts,
    caller: Viewer,
    batch: BatchName,
    tag: Tags = None,
    format: Annotated[ReportFormat, Query(description="The format.")] = ReportFormat.HTML,
    attachment: Annotated[bool, Query(description="As a file to save, instead of a page to look at.")] = False,
) -> Response:
    """Return the results as one HTML page that needs no network, or as Markdown for a pull request."""
    from wtb.reporting import FORMATS
    from wtb.reporting.content import Report

    with showing():
        result = result_of(parts, batch, tag or ())
        text = FORMATS[format.value](Report.of(result))
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", result.batch.name)[:100]
    how = "attachment" if attachment or format is not ReportFormat.HTML else "inline"
    return Response(
        text.encode("utf-8", "backslashreplace"),
        media_type="text/html" if format is ReportFormat.HTML else "text/markdown",
        headers={
            "Content-Security-Policy": _REPORT_POLICY,
            "Content-Disposition": f'{how}; filename="report-{name}.{format.value}"',
            "X-Content-Type-Options": "nosniff",
        },
    )
