"""Environments on Ray: what a node asks of the cluster, and what is said if no machine has it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import wtb
from tests.integration import environment_nodes as nodes
from wtb.bench import Bench
from wtb.domain.environment import EnvironmentConfig
from wtb.infrastructure.environments import ray as ray_environment

pytestmark = pytest.mark.usefixtures("ray_cluster")


def run_with(resources: wtb.Resources) -> tuple[str, str]:
    """Run a node with these resources; return its status and its error."""
    flow = wtb.Workflow("on-ray")
    config = EnvironmentConfig(kind="ray", resources=resources)
    flow.add_node("work", nodes.add, start=True, environment=config)
    with Bench("memory://") as bench:
        run = bench.run(flow, {"a": 1, "b": 2})
    failure = run.execution.failure
    return str(run.status), "" if failure is None else failure.message


@pytest.mark.parametrize(
    ("resources", "lacking"),
    [
        (wtb.Resources(num_gpus=1), "no machine has GPU 1 (the most is GPU 0)"),
        (
            wtb.Resources(num_gpus=1, custom={"fpga": 2}),
            "no machine has GPU 1 (the most is GPU 0) or fpga 2 (the most is fpga 0)",
        ),
        (wtb.Resources(memory_gb=90_000), "no machine has 9e+04 GB of memory"),
    ],
)
def test_a_resource_that_no_machine_has_fails_the_node_on_ray_and_is_named(
    resources: wtb.Resources, lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_environment, "_PLACED_WITHIN_S", 0.5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    status, told = run_with(resources)
    assert status == "failed"
    assert "Ray found no machine for an environment within 0.5 s. It needs CPU 1" in told
    assert lacking in told
    assert [each.name for each in tmp_path.iterdir() if "scratch" in each.name] == []


def test_a_cluster_on_this_machine_has_room_for_environments_beside_its_workers() -> None:
    machine = wtb.Resources(num_cpus=os.cpu_count() or 1, memory_gb=5)
    assert run_with(wtb.Resources(num_cpus=2 + machine.num_cpus, memory_gb=machine.memory_gb)) == ("completed", "")


def test_a_resource_that_a_machine_has_is_taken_on_ray_while_the_environment_lives() -> None:
    assert run_with(wtb.Resources(num_cpus=2, memory_gb=0.5)) == ("completed", "")
    assert run_with(wtb.Resources(num_cpus=2, memory_gb=0.5)) == ("completed", "")  # the first has given it back


def test_an_idle_environment_gives_its_resources_to_one_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.application.runs.environments._IDLE_S", 0.2)
    whole = wtb.Resources(num_cpus=2 + (os.cpu_count() or 1), memory_gb=0.5)
    flow = wtb.Workflow("in-turns")
    for name in ("first", "second"):
        config = EnvironmentConfig(kind="ray", resources=whole, variables={"MODE": name})
        flow.add_node(name, nodes.show_variables, start=name == "first", environment=config)
    flow.edge("first", "second")
    with Bench("memory://") as bench:
        run = bench.run(flow, {})
        assert run.status == "completed", run.execution.failure
        assert run.state["variables"]["MODE"] == "second"
