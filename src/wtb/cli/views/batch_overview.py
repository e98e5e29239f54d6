"""The results of a batch on one screen: the matrix of scores, and the notes below it."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.application.queries.batch_data import MatrixRow
from wtb.batch_results import BatchResult
from wtb.cli.output import echo
from wtb.cli.views.batch_changes import print_changes, print_noticed
from wtb.cli.views.batch_status import print_runner_hint
from wtb.cli.views.batch_tables import (
    print_crowding,
    print_evaluation_failures,
    print_failures,
    print_flaky,
    print_matrix,
    print_measured_apart,
    print_not_taken_back,
    print_sharing,
    print_spent,
    print_tags,
)
from wtb.domain.display import counted


def print_overview(result: BatchResult, rows: Sequence[MatrixRow]) -> None:
    """Print how a batch ended, its matrix, and what to know about its figures."""
    record = result.batch.record
    repeats = f" × {counted(record.repeats, 'repeat')}" if record.repeats > 1 else ""
    print_changes(record.changes)
    sizes = f"{counted(len(record.combinations), 'combination')} × {counted(len(record.cases), 'case')}{repeats}"
    echo(f"{result.batch.name}: {result.status.replace('_', ' ')}, {sizes}\n")
    print_matrix(result, rows)
    echo()
    print_tags(result)
    print_flaky(result)
    print_sharing(result)
    print_noticed(result)
    print_crowding(result)
    print_runner_hint(result)
    print_measured_apart(result)
    print_spent(result)
    print_failures(result)
    print_evaluation_failures(result)
    print_not_taken_back(result)
