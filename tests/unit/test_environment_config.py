"""EnvironmentConfig: what it accepts, what each kind refuses by name, and its form as data."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wtb
from tests.integration import environment_nodes as nodes
from wtb.application.dependencies.workflow_code import node_fingerprint, surroundings
from wtb.domain.environment import EnvironmentConfig, environment_of
from wtb.domain.errors import InvalidInput, InvalidWorkflow
from wtb.flow import Workflow
from wtb.infrastructure.environments.subprocess import remote_config_data


def flow_with(environment: Any) -> Workflow:
    flow = Workflow("environments")
    flow.add_node("work", nodes.add, start=True, environment=environment)
    return flow


@pytest.mark.parametrize("kind", ["in_process", "subprocess", "ray", "grpc"])
@pytest.mark.parametrize(
    "option", [{"container_image": "python:3.12"}, {"network_isolation": True}, {"filesystem_isolation": True}]
)
def test_isolation_that_wtb_cannot_give_is_refused_by_name(kind: str, option: dict[str, Any]) -> None:
    with pytest.raises(InvalidWorkflow, match=f"node 'work': environment '{kind}' cannot honour {next(iter(option))}"):
        flow_with(EnvironmentConfig(kind=kind, **option)).definition().validate()


@pytest.mark.parametrize(
    "option",
    [{"python": "/usr/bin/python3"}, {"packages": ["numpy"]}, {"variables": {"A": "b"}}, {"memory_gb": 1}],
)
def test_a_node_in_this_process_cannot_have_its_own_interpreter_or_memory(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidWorkflow, match=f"'in_process' cannot honour {next(iter(option))}"):
        flow_with(EnvironmentConfig(**option)).definition().validate()


def test_resources_that_only_ray_can_honour_are_refused_by_name() -> None:
    resources = wtb.Resources(num_cpus=2, num_gpus=1, custom={"fpga": 1}, memory_gb=4)
    for kind, address in (("subprocess", None), ("grpc", "host:7878")):
        with pytest.raises(InvalidWorkflow) as refused:
            flow_with(EnvironmentConfig(kind=kind, address=address, resources=resources)).definition().validate()
        for name, fault in zip(("num_cpus", "num_gpus", "custom"), refused.value.faults, strict=True):
            assert fault == (
                f"node 'work': environment '{kind}' cannot honour {name} of resources: its processes share the machine "
                f"with others. Leave {name} out, or use environment 'ray'"
            )
    flow_with(EnvironmentConfig(kind="ray", resources=resources)).definition().validate()


def test_a_server_without_an_address_is_refused() -> None:
    with pytest.raises(InvalidWorkflow, match="needs the address of a wtb environment-server"):
        flow_with(EnvironmentConfig(kind="grpc")).definition().validate()


@pytest.mark.parametrize("address", ["host", "host:", ":7878", "host:seven", "host:70000", "host:0", 7878])
def test_the_address_of_a_server_has_a_host_and_a_port(address: Any) -> None:
    with pytest.raises(InvalidWorkflow, match="is a host and a port, such as 'host:7878', not "):
        flow_with(EnvironmentConfig(kind="grpc", address=address)).definition().validate()


@pytest.mark.parametrize(("kind", "address"), [("subprocess", None), ("grpc", "host:7878"), ("ray", None)])
def test_memory_may_be_given_as_a_resource(kind: str, address: str | None) -> None:
    config = EnvironmentConfig(kind=kind, address=address, resources=wtb.Resources(memory_gb=4))
    flow_with(config).definition().validate()
    assert config.memory_bytes == EnvironmentConfig(kind=kind, memory_gb=4).memory_bytes == 4_000_000_000
    assert remote_config_data(config)["memory_gb"] == 4


def test_a_node_in_this_process_has_no_resources() -> None:
    with pytest.raises(InvalidWorkflow, match=r"'in_process' cannot honour resources: it is for subprocess, ray, grpc"):
        flow_with(EnvironmentConfig(resources=wtb.Resources())).definition().validate()


def test_memory_that_is_given_twice_is_refused() -> None:
    config = EnvironmentConfig(kind="ray", memory_gb=4, resources=wtb.Resources())
    with pytest.raises(InvalidWorkflow, match="memory_gb and resources are both given; write the memory into"):
        flow_with(config).definition().validate()


def test_resources_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"resources is a wtb\.Resources, such as .*, not 5"):
        EnvironmentConfig(kind="ray", resources=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"resources: there is no gpus; there are num_cpus"):
        environment_of({"kind": "ray", "resources": {"gpus": 1}})


def test_limits_must_be_positive_and_variables_texts() -> None:
    config = EnvironmentConfig(kind="subprocess", memory_gb=0, timeout_s=-1, variables={"A=B": "c", "N": 5})  # type: ignore[dict-item]
    with pytest.raises(InvalidWorkflow) as refused:
        flow_with(config).definition().validate()
    assert [fault.partition(": ")[2] for fault in refused.value.faults] == [
        "memory_gb must be positive and finite, not 0",
        "timeout_s must be positive and finite, not -1",
        "a variable cannot be called 'A=B'",
        "variable 'N' is a text, a wtb.Secret, or None for its value here; not 5",
    ]


@pytest.mark.parametrize("given", [5, ["subprocess"]])
def test_an_environment_is_a_kind_or_a_config(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"environment is a kind such as 'subprocess', or a wtb\.EnvironmentConfig"):
        flow_with(given)


def test_one_package_as_a_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"packages is a list, such as"):
        EnvironmentConfig(kind="subprocess", packages="numpy")  # type: ignore[arg-type]


def test_a_workflow_as_data_holds_the_environment() -> None:
    config = EnvironmentConfig(kind="subprocess", packages=("numpy==2.1.0",), variables={"A": "b"}, memory_gb=2)
    data = flow_with(config).to_dict()
    assert Workflow.from_dict(data).definition().nodes[0].environment == config


def test_a_workflow_as_data_holds_the_resources() -> None:
    config = EnvironmentConfig(kind="ray", resources=wtb.Resources(num_gpus=1, custom={"fpga": 2}))
    data = json.loads(json.dumps(flow_with(config).to_dict()))
    assert data["nodes"][0]["environment"]["resources"]["custom"] == {"fpga": 2}
    assert Workflow.from_dict(data).definition().nodes[0].environment == config


def test_a_workflow_as_data_may_name_just_the_kind() -> None:
    data = flow_with("subprocess").to_dict()
    data["nodes"][0]["environment"] = "subprocess"
    assert Workflow.from_dict(data).definition().nodes[0].environment == EnvironmentConfig(kind="subprocess")


def test_a_secret_is_not_in_a_workflow_as_data() -> None:
    config = EnvironmentConfig(kind="subprocess", variables={"KEY": wtb.Secret("s3cret-value")})
    assert "s3cret-value" not in str(flow_with(config).to_dict())
    assert EnvironmentConfig.from_data(config.to_data()).variables == {"KEY": None}


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"no option memory_mb; it has kind, python"):
        environment_of({"kind": "subprocess", "memory_mb": 5})


def test_a_mocked_node_runs_in_this_process() -> None:
    mocked = flow_with("subprocess").mocked({"work": {"sum": 0}})
    assert mocked.definition().nodes[0].environment is None


def parts_of(environment: Any) -> dict[str, str]:
    definition = flow_with(environment).definition()
    return dict(node_fingerprint(definition.nodes[0], definition, surroundings(definition)).parts)


@pytest.mark.parametrize(
    "other",
    [
        EnvironmentConfig(kind="subprocess", packages=("numpy==2.1.0",)),
        EnvironmentConfig(kind="subprocess", variables={"MODE": "b"}),
        EnvironmentConfig(kind="subprocess", variables={"MODE": None}),
        EnvironmentConfig(kind="subprocess", variables={"MODE": "a"}, working_folder="/tmp"),
        None,
    ],
)
def test_a_result_depends_on_the_environment(other: Any) -> None:
    assert parts_of(EnvironmentConfig(kind="subprocess", variables={"MODE": "a"})) != parts_of(other)


def test_a_result_depends_on_the_value_that_a_variable_has_here(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EnvironmentConfig(kind="subprocess", variables={"MODE": None})
    monkeypatch.setenv("MODE", "a")
    before = parts_of(config)
    monkeypatch.setenv("MODE", "b")
    assert parts_of(config) != before


def test_a_result_does_not_depend_on_limits() -> None:
    limited = EnvironmentConfig(kind="subprocess", memory_gb=1, timeout_s=5)
    assert parts_of(limited) == parts_of("subprocess")
    assert parts_of(EnvironmentConfig(kind="ray", resources=wtb.Resources(num_gpus=1))) == parts_of("ray")


def test_a_node_in_this_process_depends_on_no_environment() -> None:
    assert parts_of("in_process") == parts_of(None)
