"""Every storage keeps the contracts of the repositories."""

from wtb.testing.execution_repository import ExecutionRepositoryContract
from wtb.testing.repositories import BranchRepositoryContract, NodeRunRepositoryContract, WorkflowRepositoryContract


class TestWorkflowRepository(WorkflowRepositoryContract): ...


class TestExecutionRepository(ExecutionRepositoryContract): ...


class TestBranchRepository(BranchRepositoryContract): ...


class TestNodeRunRepository(NodeRunRepositoryContract): ...
