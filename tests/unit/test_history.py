"""ExecutionHistory: paths, boundaries, rollback targets and names, through loops, forks, rollbacks and tombstones."""

import pytest

from tests.unit.run_story import NOW, Story
from wtb.domain.checkpoint import Checkpoint, Kind, NodeStatus, Trigger
from wtb.domain.errors import BranchNotFound, CheckpointNotFound, InvalidInput
from wtb.domain.execution import Branch
from wtb.domain.history import ExecutionHistory, Granularity
from wtb.domain.ids import BranchId, CheckpointId, ExecutionId


@pytest.fixture
def story() -> Story:
    return Story()


def ids(checkpoints: tuple[Checkpoint, ...]) -> list[str]:
    return [checkpoint.id for checkpoint in checkpoints]


def bounds(history: ExecutionHistory, branch: str | None = None) -> list[tuple[str, int, str | None, str | None]]:
    return [(found.node, found.visit, found.first_id, found.last_id) for found in history.boundaries(branch)]


def test_before_the_first_checkpoint_there_is_nothing() -> None:
    branch = Branch(id=BranchId("b"), execution_id=ExecutionId("run"), name="main", head_id=None, created_at=NOW)
    history = ExecutionHistory(
        execution_id=ExecutionId("run"), active_branch_id=branch.id, branches=(branch,), checkpoints=(), node_runs=()
    )
    assert (history.latest(), history.lineage(), history.boundaries(), history.visits()) == (None, (), (), {})
    assert history.rollback_targets() == ()
    with pytest.raises(CheckpointNotFound, match="'0'"):
        history.resolve(0)


def test_a_straight_run_is_a_straight_line(story: Story) -> None:
    story.nodes("a b")
    history = story.history()
    assert ids(history.lineage()) == ["c0", "c1", "c2"]
    assert history.path() == (("a", 1), ("b", 1))
    assert bounds(history) == [("a", 1, "c1", "c1"), ("b", 1, "c2", "c2")]
    latest = history.latest()
    assert latest is not None
    assert latest.id == "c2"


def test_every_visit_of_a_loop_has_its_own_boundary(story: Story) -> None:
    story.nodes("a b a b a")
    history = story.history()
    assert bounds(history) == [
        ("a", 1, "c1", "c1"),
        ("b", 1, "c2", "c2"),
        ("a", 2, "c3", "c3"),
        ("b", 2, "c4", "c4"),
        ("a", 3, "c5", "c5"),
    ]
    assert history.completed_nodes() == ("a", "b", "a", "b", "a")
    assert history.visits() == {"a": 3, "b": 2}


def test_a_boundary_reaches_from_the_first_to_the_last_checkpoint_of_a_visit(story: Story) -> None:
    run = story.begin("a")
    story.inside(run, Trigger.TOOL_START)
    story.inside(run, Trigger.TOOL_END)
    story.inside(run, Trigger.NODE_END)
    story.end(run)
    (boundary,) = story.history().boundaries()
    assert (boundary.first_id, boundary.last_id, boundary.checkpoint_count) == ("c1", "c3", 3)
    assert boundary == story.runs[run.id].boundary()


def test_members_of_a_parallel_superstep_share_their_barrier(story: Story) -> None:
    story.node("a")
    story.together("b c")
    story.node("d")
    history = story.history()
    assert bounds(history) == [("a", 1, "c1", "c1"), ("b", 1, "c2", "c2"), ("c", 1, "c2", "c2"), ("d", 1, "c3", "c3")]
    assert [boundary.checkpoint_count for boundary in history.boundaries()] == [1, 1, 1, 1]
    assert history.by_node("b").id == history.by_node("c").id == "c2"


def test_a_parallel_superstep_in_a_loop_has_a_barrier_for_every_turn(story: Story) -> None:
    for _ in range(2):
        story.node("a")
        story.together("b c")
    assert bounds(story.history())[3:] == [("a", 2, "c3", "c3"), ("b", 2, "c4", "c4"), ("c", 2, "c4", "c4")]


def test_a_node_that_has_begun_is_part_of_the_path_and_not_of_what_completed(story: Story) -> None:
    story.node("a")
    story.begin("b")
    history = story.history()
    assert bounds(history) == [("a", 1, "c1", "c1"), ("b", 1, None, None)]
    assert history.boundaries()[1].status is NodeStatus.STARTED
    assert history.completed_nodes() == ("a",)
    assert history.visits() == {"a": 1, "b": 1}


def test_a_node_that_failed_is_shown_with_its_error_and_cannot_be_gone_back_to(story: Story) -> None:
    story.node("a")
    story.end(story.begin("b"), NodeStatus.FAILED)
    history = story.history()
    assert (history.boundaries()[1].status, history.boundaries()[1].error) == (NodeStatus.FAILED, "ValueError: no")
    with pytest.raises(CheckpointNotFound, match="'b'"):
        history.by_node("b")


def test_lineages_of_branches_share_what_was_before_the_fork(story: Story) -> None:
    story.nodes("a b c")
    story.fork("other", CheckpointId("c1"))
    story.nodes("b x")
    history = story.history()
    assert ids(history.lineage("main")) == ["c0", "c1", "c2", "c3"]
    assert ids(history.lineage()) == ids(history.lineage("b-other")) == ["c0", "c1", "c4", "c5"]
    assert history.path("main") == (("a", 1), ("b", 1), ("c", 1))
    assert history.path("other") == (("a", 1), ("b", 1), ("x", 1))


def test_visits_are_counted_along_the_lineage_of_each_branch(story: Story) -> None:
    story.nodes("a a a")
    story.fork("other", CheckpointId("c1"))
    story.node("a")
    history = story.history()
    assert (history.visits("main"), history.visits("other")) == ({"a": 3}, {"a": 2})
    assert (history.by_node("a", 2, "main").id, history.by_node("a", 2, "other").id) == ("c2", "c4")


def test_a_fork_that_has_not_moved_ends_where_it_began(story: Story) -> None:
    story.nodes("a b")
    story.begin("c")
    story.fork("other", CheckpointId("c2"))
    history = story.history()
    assert history.path("other") == (("a", 1), ("b", 1))
    assert history.path("main") == (("a", 1), ("b", 1), ("c", 1))


def test_a_fork_of_another_run_goes_through_that_runs_checkpoints(story: Story) -> None:
    story.nodes("a b")
    story.run = ExecutionId("forked")
    story.fork("here", CheckpointId("c1"))
    story.node("x")
    history = story.history()
    assert [(found.id, found.execution_id) for found in history.lineage()] == [
        ("c0", "run"),
        ("c1", "run"),
        ("c3", "forked"),
    ]
    assert history.path() == (("a", 1), ("x", 1))


def test_what_a_rollback_left_behind_is_on_no_path(story: Story) -> None:
    story.nodes("a b c")
    story.move(CheckpointId("c1"))
    assert story.history().path() == (("a", 1),)
    story.nodes("b d")
    history = story.history()
    assert ids(history.lineage()) == ["c0", "c1", "c4", "c5"]
    assert bounds(history) == [("a", 1, "c1", "c1"), ("b", 1, "c4", "c4"), ("d", 1, "c5", "c5")]
    with pytest.raises(CheckpointNotFound, match="'c'"):
        history.resolve("c")


def test_checkpoints_that_a_rollback_left_behind_are_still_found_by_id_and_name(story: Story) -> None:
    story.node("a")
    run = story.begin("b")
    story.inside(run, Trigger.NODE_END, name="good")
    story.move(CheckpointId("c1"))
    assert story.history().resolve("c2").id == story.history().resolve("good").id == "c2"


def test_a_parallel_superstep_that_was_rolled_back_and_run_again_shows_the_second_barrier(story: Story) -> None:
    story.node("a")
    story.together("b c")
    story.move(CheckpointId("c1"))
    story.together("b c")
    assert bounds(story.history()) == [("a", 1, "c1", "c1"), ("b", 1, "c3", "c3"), ("c", 1, "c3", "c3")]


def test_a_lineage_whose_checkpoint_is_missing_names_it(story: Story) -> None:
    story.nodes("a b")
    del story.checkpoints["c1"]
    with pytest.raises(CheckpointNotFound, match="'c1' in run run"):
        story.history().lineage()


def test_a_head_that_is_missing_is_named(story: Story) -> None:
    story.node("a")
    del story.checkpoints["c1"]
    with pytest.raises(CheckpointNotFound, match="'c1'"):
        story.history().latest()


def test_a_branch_that_is_not_there_is_named_with_the_run(story: Story) -> None:
    with pytest.raises(BranchNotFound, match="'nope' in run run"):
        story.history().branch("nope")
    with pytest.raises(BranchNotFound, match="'nope'"):
        story.history().resolve(0, "nope")


def test_a_branch_is_found_by_name_and_by_id(story: Story) -> None:
    history = story.history()
    assert history.branch() == history.branch("main") == history.branch("b-main")


def with_tools(story: Story, node: str) -> None:
    """Run a node that calls one tool."""
    run = story.begin(node)
    story.inside(run, Trigger.TOOL_START)
    story.inside(run, Trigger.TOOL_END)
    story.inside(run, Trigger.NODE_END)
    story.end(run)


def targets(story: Story, granularity: Granularity) -> list[str]:
    return ids(story.history().rollback_targets(granularity))


def test_rollback_targets_at_node_granularity_are_the_start_and_the_exits_of_nodes(story: Story) -> None:
    with_tools(story, "a")
    with_tools(story, "b")
    story.node("c")
    assert targets(story, Granularity.NODE) == ["c0", "c3", "c6"]


def test_rollback_targets_at_tool_granularity_are_all_checkpoints_before_the_head(story: Story) -> None:
    with_tools(story, "a")
    story.node("b")
    assert targets(story, Granularity.TOOL) == ["c0", "c1", "c2", "c3"]


def test_automatic_targets_are_node_exits_and_the_tool_calls_of_the_current_node(story: Story) -> None:
    with_tools(story, "a")
    run = story.begin("b")
    for trigger in (Trigger.TOOL_START, Trigger.TOOL_END, Trigger.LLM_CALL):
        story.inside(run, trigger)
    assert targets(story, Granularity.AUTO) == ["c0", "c3", "c4", "c5"]
    assert story.history().rollback_targets() == story.history().rollback_targets(Granularity.AUTO)


def test_the_head_deleted_checkpoints_and_those_that_restore_nothing_are_no_targets(story: Story) -> None:
    story.nodes("a b")
    story.checkpoint(trigger=Trigger.PAUSE, restore_point=False, kind=Kind.SYSTEM)
    story.nodes("c")
    story.delete("c1")
    for granularity in Granularity:
        assert targets(story, granularity) == ["c0", "c2"]


def test_targets_of_another_branch_are_those_of_its_lineage(story: Story) -> None:
    story.nodes("a b")
    story.fork("other", CheckpointId("c1"))
    story.node("x")
    assert ids(story.history().rollback_targets(Granularity.NODE, "main")) == ["c0", "c1"]
    assert ids(story.history().rollback_targets(Granularity.NODE)) == ["c0", "c1"]


def test_a_target_can_be_a_node_a_visit_a_step_an_id_or_a_name(story: Story) -> None:
    story.nodes("a b a b")
    story.checkpoint(trigger=Trigger.USER_REQUEST, kind=Kind.MANUAL, name="before the change")
    wanted: dict[str | int, str] = {
        "a": "c3",
        "a#1": "c1",
        "b#2": "c4",
        0: "c0",
        "4": "c4",
        "c2": "c2",
        "before the change": "c5",
    }
    history = story.history()
    assert {target: history.resolve(target).id for target in wanted} == wanted


def test_a_step_number_means_the_lineage_of_the_branch(story: Story) -> None:
    story.nodes("a b")
    story.fork("other", CheckpointId("c1"))
    story.node("x")
    history = story.history()
    assert (history.resolve(2).id, history.resolve(2, "main").id) == ("c3", "c2")


@pytest.mark.parametrize(
    "target",
    ["nope", "a#2", "a#0", "a#", "a#x", "a#²", "99", 99, -1, "²", "9" * 5_000, "", "#", "c", "A"],
    ids=lambda target: str(target)[:10],
)
def test_what_nothing_answers_to_is_an_error_that_names_it(story: Story, target: str | int) -> None:
    story.node("a")
    with pytest.raises(CheckpointNotFound) as refused:
        story.history().resolve(target)
    assert refused.value.key == str(target)
    assert "in run run" in str(refused.value)


def with_ids(story: Story, *checkpoint_ids: str) -> ExecutionHistory:
    for checkpoint_id in checkpoint_ids:
        story.checkpoint(id=CheckpointId(checkpoint_id), trigger=Trigger.USER_REQUEST)
    return story.history()


def test_four_characters_of_an_id_are_enough_when_they_fit_one_checkpoint(story: Story) -> None:
    history = with_ids(story, "0198aaaa-1", "0199bbbb-2")
    assert history.resolve("0198").id == history.resolve("0198aaaa-").id == "0198aaaa-1"
    with pytest.raises(CheckpointNotFound, match="'019'"):
        history.resolve("019")


def test_a_prefix_of_digits_is_a_step_only_where_there_is_such_a_step(story: Story) -> None:
    assert with_ids(story, "01980000-1").resolve("01980000").id == "01980000-1"
    assert with_ids(story, "0001aaaa-1").resolve("0001").id == "01980000-1"


def test_a_prefix_that_fits_several_checkpoints_says_how_many(story: Story) -> None:
    history = with_ids(story, "0198aaaa-1", "0198aaaa-2", "0198aaaa-3")
    with pytest.raises(InvalidInput, match="3 checkpoints of run run start with '0198aaaa'; give more of the id"):
        history.resolve("0198aaaa")


def test_a_prefix_that_is_ambiguous_only_among_the_deleted_is_clear(story: Story) -> None:
    with_ids(story, "0198aaaa-1", "0198aaaa-2")
    story.delete("0198aaaa-1")
    assert story.history().resolve("0198aaaa").id == "0198aaaa-2"


def test_a_node_that_is_called_like_a_number_goes_before_the_step(story: Story) -> None:
    story.nodes("a 1 b")
    assert story.history().resolve("1").id == "c2"
    assert story.history().resolve(3).id == "c3"


def test_a_name_goes_before_a_node_and_an_id_before_a_name(story: Story) -> None:
    story.nodes("a b")
    story.checkpoint(trigger=Trigger.USER_REQUEST, name="a")
    story.checkpoint(trigger=Trigger.USER_REQUEST, name="c1")
    assert story.history().resolve("a").id == "c3"
    assert story.history().resolve("c1").id == "c1"


def test_a_name_of_digits_is_found_when_there_is_no_such_step(story: Story) -> None:
    story.checkpoint(trigger=Trigger.USER_REQUEST, name="2026")
    assert story.history().resolve("2026").id == "c1"


def test_names_are_found_on_every_branch(story: Story) -> None:
    story.fork("other", CheckpointId("c0"))
    story.checkpoint(trigger=Trigger.USER_REQUEST, name="there")
    story.active = "main"
    assert story.history().by_name("there").id == "c1"
    with pytest.raises(CheckpointNotFound, match="'here'"):
        story.history().by_name("here")


def test_tombstones_keep_lineages_and_boundaries_whole(story: Story) -> None:
    story.nodes("a b c")
    before = bounds(story.history())
    story.delete("c1")
    story.delete("c2")
    history = story.history()
    assert ids(history.lineage()) == ["c0", "c1", "c2", "c3"]
    assert bounds(history) == before


@pytest.mark.parametrize("target", ["a", "a#2", "c2", 2, "mark"])
def test_a_deleted_checkpoint_answers_to_nothing(story: Story, target: str | int) -> None:
    story.node("a")
    run = story.begin("a")
    story.inside(run, Trigger.NODE_END, name="mark")
    story.end(run)
    story.node("b")
    story.delete("c2")
    with pytest.raises(CheckpointNotFound, match=f"'{target}'"):
        story.history().resolve(target)
    assert story.history().resolve("a#1").id == "c1"
