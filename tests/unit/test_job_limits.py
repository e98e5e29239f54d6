"""What a job may use: resources as users write them, and the words for a limit that a job exceeded."""

from __future__ import annotations

import json
import math

import pytest

from wtb.domain.errors import InvalidInput
from wtb.domain.job_limits import ExceededLimit, JobLimits, Resources


def test_resources_may_be_an_object_or_a_dictionary_and_have_the_documented_defaults() -> None:
    assert Resources.of(None) == Resources(num_cpus=1, num_gpus=0, memory_gb=2, custom={})
    assert Resources.of({"memory_gb": 8, "custom": {"tpu": 1}}) == Resources(memory_gb=8, custom={"tpu": 1})
    assert Resources.of(Resources(memory_gb=None)).memory_bytes is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_cpus": -1}, "num_cpus must be a finite number from 0, not -1"),
        ({"num_gpus": "two"}, "num_gpus must be a finite number from 0, not 'two'"),
        ({"num_gpus": 1.5}, "num_gpus above 1 must be a whole number for Ray, not 1.5"),
        ({"memory_gb": 0}, "memory_gb must be a finite number above 0, or None for no limit, not 0"),
        ({"memory_gb": math.inf}, "memory_gb must be a finite number above 0, or None for no limit, not inf"),
        ({"num_cpus": math.nan}, "num_cpus must be a finite number from 0, not nan"),
        ({"custom": {"tpu": True}}, "tpu must be a finite number from 0, not True"),
        ({"custom": ["tpu"]}, "custom maps names to amounts, such as {'tpu': 1}, not \\['tpu'\\]"),
        ({"custom": {"GPU": 1}}, "write num_gpus instead of 'GPU' in custom"),
        ({"custom": {"": 1}}, "a custom resource cannot be called ''"),
        ({"tpu": 1}, "there is no tpu; there are num_cpus, num_gpus, memory_gb, custom"),
    ],
)
def test_amounts_that_make_no_sense_are_refused_by_name(given: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Resources.of(given)


def test_a_limit_says_what_was_used_and_what_would_be_enough() -> None:
    limit = ExceededLimit.memory(2_310_000_000, 2_000_000_000)
    assert limit.happened == "used 2.31 GB of memory, more than 2 GB, the limit of memory_gb"
    assert limit.advice.endswith("wtb.Resources(memory_gb=3)")
    assert ExceededLimit.time(3_600).happened == "took longer than 3,600 s, the limit of job_timeout_s"


def test_limits_cross_processes_as_json() -> None:
    limits = JobLimits(timeout_s=None, resources=Resources(num_gpus=0.5, custom={"tpu": 2}))
    assert JobLimits.from_data(json.loads(json.dumps(limits.to_data()))) == limits
