"""The results of a batch: BatchResult, the results of its jobs, and the comparison of two batches."""

from wtb.batch_results.comparison import check_primary, check_weighted, compare_results, known_or_worst
from wtb.batch_results.job_results import CaseText, FlakyCase, JobResult, error_line, failed_jobs, unscored_jobs
from wtb.batch_results.result import MOST_FLAKY, BatchResult

__all__ = [
    "MOST_FLAKY",
    "BatchResult",
    "CaseText",
    "FlakyCase",
    "JobResult",
    "check_primary",
    "check_weighted",
    "compare_results",
    "error_line",
    "failed_jobs",
    "known_or_worst",
    "unscored_jobs",
]
