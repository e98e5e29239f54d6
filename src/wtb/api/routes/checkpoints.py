"""Checkpoints of a run: infos, states, files and differences."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query
from starlette.responses import StreamingResponse

from wtb.api.access import Viewer
from wtb.api.models.base import ListAnswer
from wtb.api.models.checkpoints import CheckpointCountsAnswer, CheckpointDetailAnswer, CheckpointRowAnswer, FileAnswer
from wtb.api.models.diffs import DiffAnswer, StatePartDiffAnswer
from wtb.api.models.parameters import AtQuery, Cursor, FilePath, Limit, RunId, Target, printable
from wtb.api.parts import Parts
from wtb.api.problems import answers
from wtb.api.states import CHILDREN, check_size, diff_of, part_of, tagged_json
from wtb.application.queries.cursors import cursor_of, page_of_all, parts_of
from wtb.domain.errors import (
    CheckpointNotFound,
    DamagedData,
    ExecutionNotFound,
    FileNotFound,
    InvalidInput,
    TooMuchToShow,
)
from wtb.domain.files import FileTree
from wtb.domain.ids import CheckpointId

router = APIRouter(prefix="/api/v1/executions/{execution_id}", tags=["checkpoints"])

_ONE = answers(ExecutionNotFound, CheckpointNotFound, InvalidInput, DamagedData)
_FIRST_FILES = 100

Compared = tuple[CheckpointId, CheckpointId]


@router.get("/checkpoints", operation_id="checkpoints_list", summary="List the checkpoints of a run", responses=_ONE)
def list_checkpoints(
    *,
    parts: Parts,
    caller: Viewer,
    run: RunId,
    every: Annotated[
        bool, Query(description="All lines, also those that rollbacks left, instead of the line to the head.")
    ] = False,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ListAnswer[CheckpointRowAnswer]:
    """Return a page of checkpoints without their states, newest first."""
    before = None if cursor is None else parts_of(cursor, str)[0]
    page = parts.services.queries.history_page(run, every=every, before=before, limit=limit)
    rows = [CheckpointRowAnswer.of_row(row) for row in reversed(page.rows)]
    return ListAnswer(items=rows, next=cursor_of(rows[-1].id) if rows and page.has_earlier else None)


@router.get("/counts", operation_id="checkpoints_count", summary="Count the checkpoints of a run", responses=_ONE)
def count_checkpoints(*, parts: Parts, caller: Viewer, run: RunId) -> CheckpointCountsAnswer:
    """Return how many checkpoints a run has on all its lines, and how many of them are restore points."""
    return CheckpointCountsAnswer.of(parts.services.queries.counts(run))


@router.get(
    "/restore-points",
    operation_id="checkpoints_list_restore_points",
    summary="List the checkpoints that a run can go back to",
    responses=_ONE,
)
def list_restore_points(
    *, parts: Parts, caller: Viewer, run: RunId, cursor: Cursor = None, limit: Limit = 100
) -> ListAnswer[CheckpointRowAnswer]:
    """Return a page of the restore points on the line to the head, newest first, without the head itself.

    A page may hold fewer items than its limit although `next` leads on.
    """
    before = None if cursor is None else parts_of(cursor, str)[0]
    page = parts.services.queries.history_page(run, before=before, limit=limit)
    targets = [row for row in reversed(page.rows) if row.checkpoint.restore_point and row.mark == ""]
    first = page.rows[0].checkpoint.id if page.rows and page.has_earlier else None
    return ListAnswer(
        items=[CheckpointRowAnswer.of_row(row) for row in targets], next=None if first is None else cursor_of(first)
    )


@router.get("/checkpoints/{target}", operation_id="checkpoints_get", summary="Show a checkpoint", responses=_ONE)
def get_checkpoint(*, parts: Parts, caller: Viewer, run: RunId, target: Target) -> CheckpointDetailAnswer:
    """Return a checkpoint with its state and its first files."""
    view = parts.services.queries.checkpoint_view(run, target)
    return CheckpointDetailAnswer.of_view(view, part_of(parts, view.state), _file_page(view.files, None, _FIRST_FILES))


@router.get("/files", operation_id="files_list", summary="List the files at the head of a run", responses=_ONE)
def list_files(
    *, parts: Parts, caller: Viewer, run: RunId, at: AtQuery = None, cursor: Cursor = None, limit: Limit = 500
) -> ListAnswer[FileAnswer]:
    """Return a page of the files, folders and links at the head, or with `at` at a checkpoint, sorted by path."""
    return _file_page(parts.services.file_contents.tree(run, at), cursor, limit)


@router.get(
    "/checkpoints/{target}/files",
    operation_id="checkpoints_list_files",
    summary="List the files of a checkpoint",
    responses=_ONE,
)
def list_checkpoint_files(
    *, parts: Parts, caller: Viewer, run: RunId, target: Target, cursor: Cursor = None, limit: Limit = 500
) -> ListAnswer[FileAnswer]:
    """Return a page of the files, folders and links of a checkpoint, sorted by path."""
    return _file_page(parts.services.file_contents.tree(run, target), cursor, limit)


def _file_page(tree: FileTree, cursor: str | None, limit: int) -> ListAnswer[FileAnswer]:
    entries, next_cursor = page_of_all(tuple(entry for _, entry in sorted(tree.items())), cursor, limit)
    return ListAnswer(items=[FileAnswer.of(entry) for entry in entries], next=next_cursor)


_CONTENT = {
    **answers(ExecutionNotFound, CheckpointNotFound, FileNotFound, InvalidInput, DamagedData),
    200: {
        "description": "The content of the file, always as an attachment.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
}


@router.get(
    "/files/{path:path}",
    operation_id="files_download",
    summary="Download a file at the head of a run",
    responses=_CONTENT,
    response_class=StreamingResponse,
)
def get_file(*, parts: Parts, caller: Viewer, run: RunId, path: FilePath, at: AtQuery = None) -> StreamingResponse:
    """Return the content of a file at the head, or with `at` at a checkpoint."""
    return _download(parts, run, at, path)


@router.get(
    "/checkpoints/{target}/files/{path:path}",
    operation_id="checkpoints_download_file",
    summary="Download a file of a checkpoint",
    responses=_CONTENT,
    response_class=StreamingResponse,
)
def get_checkpoint_file(
    *, parts: Parts, caller: Viewer, run: RunId, target: Target, path: FilePath
) -> StreamingResponse:
    """Return the content of a file of a checkpoint."""
    return _download(parts, run, target, path)


def _download(parts: Parts, run: str, target: str | None, path: str) -> StreamingResponse:
    """Return a file as an attachment that no browser shows or runs, whatever it holds."""
    entry, pieces = parts.services.file_contents.open(run, target, path)
    name = entry.path.rpartition("/")[2].encode("utf-8", "surrogateescape")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "Content-Length": str(entry.size),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-store",
        "ETag": f'"{entry.digest.hex()}"',
    }
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


class Part(StrEnum):
    """What two checkpoints may differ in."""

    STATE = "state"
    FILES = "files"
    CALLS = "calls"


From = Annotated[str, Query(alias="from", description="The older checkpoint.", min_length=1, max_length=500)]
To = Annotated[str | None, Query(alias="to", description="The newer checkpoint; without it the head.", max_length=500)]
OtherRun = Annotated[
    str | None, Query(alias="run", description="The run of `to`, if it is another one.", max_length=200)
]


def _compared(parts: Parts, run: RunId, old: From, new: To = None, other: OtherRun = None) -> Compared:
    """Return the ids of two checkpoints that a request names."""
    queries = parts.services.queries
    before = queries.checkpoint(run, printable("from", old))
    return before.id, queries.checkpoint(printable("run", other) or run, printable("to", new)).id


@router.get(
    "/diff",
    operation_id="checkpoints_diff",
    summary="Show what changed between two checkpoints",
    responses=answers(ExecutionNotFound, CheckpointNotFound, InvalidInput, TooMuchToShow, DamagedData),
)
def get_diff(
    *,
    parts: Parts,
    caller: Viewer,
    compared: Annotated[Compared, Depends(_compared)],
    part: Annotated[list[Part] | None, Query(description="Only these parts; without any, all.")] = None,
    texts: Annotated[bool, Query(description="With the unified diffs of texts.")] = True,
) -> DiffAnswer:
    """Compare the states, the files and the calls in between, of one run or of two.

    States with very large differences are refused with `too-much-to-show`: look at them with `…/diff/state`.
    """
    comparison, wanted = parts.services.comparison, part or list(Part)
    if Part.STATE in wanted:
        check_size(parts, comparison.states(*compared))
    found = comparison.compare(
        *compared,
        state=Part.STATE in wanted,
        files=Part.FILES in wanted,
        calls=Part.CALLS in wanted,
        texts=texts,
    )
    return DiffAnswer.of(found, tagged_json(parts))


@router.get(
    "/diff/state",
    operation_id="checkpoints_diff_state",
    summary="Show what changed in the state, piece by piece",
    responses=_ONE,
)
def get_state_diff(
    *,
    parts: Parts,
    caller: Viewer,
    compared: Annotated[Compared, Depends(_compared)],
    path: Annotated[
        str | None,
        Query(
            description="A place in both states: a JSON list of keys; in a list, the old and the new position.",
            examples=['["messages", [3, 4]]'],
            max_length=5_000,
        ),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = CHILDREN,
) -> StatePartDiffAnswer:
    """Return the parts that differ at one place, one level deep, with their counts; look deeper with their keys."""
    states = parts.services.comparison.states(*compared)
    return StatePartDiffAnswer.of(diff_of(parts, states, path, cursor=cursor, limit=limit))
