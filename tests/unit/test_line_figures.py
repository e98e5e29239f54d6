"""LineFigures: sums along the line that led to the head, and nothing beside it."""

from __future__ import annotations

from tests.unit.run_story import Story
from wtb.domain.checkpoint import NodeRun, NodeStatus, Trigger
from wtb.domain.figures import NOTHING, CallFigures, Figures, Usage
from wtb.domain.ids import CheckpointId
from wtb.domain.line_figures import LineFigures


def usage(dollars: float, model: str = "m", *, unpriced: bool = False) -> Usage:
    names = (model,) if unpriced else ()
    return Usage(input_tokens=10, output_tokens=1, cost_usd=dollars, models=(model,), unpriced=names)


class Measured(Story):
    """A story whose node runs have figures."""

    def measure(self, run: NodeRun, ms: float, dollars: float = 0.0, tool_errors: int = 0) -> None:
        figures = Figures(ms=ms, usage=usage(dollars), spent=usage(dollars), tool_errors=tool_errors)
        self.runs[run.id] = self.runs[run.id].measured(figures)

    def take(self, name: str, ms: float, dollars: float = 0.0, tool_errors: int = 0) -> CheckpointId:
        """Run a node that takes so long and costs so much."""
        made = self.node(name)
        self.measure(list(self.runs.values())[-1], ms, dollars, tool_errors)
        return made

    def figures(self) -> LineFigures:
        return LineFigures.of(self.history())


def test_node_runs_of_the_line_are_summed() -> None:
    story = Measured()
    story.take("a", 1000, 0.5, tool_errors=1)
    story.take("b", 500, 0.25, tool_errors=2)
    found = story.figures()
    assert (found.steps, found.latency_s, found.usage.cost_usd, found.tool_errors) == (2, 1.5, 0.75, 3)
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.models) == (20, 2, ("m",))


def test_what_a_rollback_or_a_fork_left_behind_does_not_count() -> None:
    story = Measured()
    first = story.take("a", 1000, 1.0)
    story.take("b", 1000, 1.0)
    story.move(first)
    story.take("b", 2000, 2.0)
    assert (story.figures().steps, story.figures().latency_s, story.figures().usage.cost_usd) == (2, 3.0, 3.0)
    story.fork("other", first)
    assert (story.figures().steps, story.figures().latency_s, story.figures().usage.cost_usd) == (1, 1.0, 1.0)
    story.active = "main"
    assert story.figures().steps == 2


def test_of_a_superstep_the_slowest_counts_in_the_time_and_all_in_the_rest() -> None:
    story = Measured()
    story.together("left right")
    for run, ms in zip(list(story.runs.values()), (2000, 3000), strict=True):
        story.measure(run, ms, 1.0)
    found = story.figures()
    assert (found.steps, found.latency_s, found.usage.cost_usd) == (1, 3.0, 2.0)


def test_a_step_whose_checkpoint_could_not_be_stored_is_a_step_of_its_own() -> None:
    story = Measured()
    missed = story.begin("a")
    head = story.take("b", 1000, 1.0)
    story.runs[missed.id] = missed.missed(head, missed.started_at)
    story.measure(missed, 2000, 1.0)
    found = story.figures()
    assert (found.steps, found.latency_s, found.usage.cost_usd) == (2, 3.0, 2.0)


def test_what_has_not_led_on_does_not_count() -> None:
    story = Measured()
    story.take("a", 1000, 1.0)
    for status in (NodeStatus.STARTED, NodeStatus.FAILED, NodeStatus.SKIPPED, NodeStatus.COMPLETED):
        run = story.begin(f"b {status}")
        story.end(run, status)
        story.measure(run, 9000, 9.0)
    assert (story.figures().steps, story.figures().latency_s, story.figures().usage.cost_usd) == (1, 1.0, 1.0)


def test_a_run_without_figures_took_the_time_from_its_start_to_its_end() -> None:
    story = Measured()
    made = story.node("a")
    (run,) = story.runs.values()
    story.runs[run.id] = run.tried_again(since=story.checkpoints[made].created_at)
    story.runs[run.id] = story.runs[run.id].completed(made, story.checkpoints[made].created_at.replace(second=31))
    assert (story.figures().latency_s, story.figures().usage) == (30.0, NOTHING)


def test_a_thread_of_langgraph_has_steps_though_it_has_no_node_runs() -> None:
    story = Measured()
    for trigger in (Trigger.NODE_END, Trigger.NODE_END, Trigger.USER_REQUEST, Trigger.NODE_END):
        story.checkpoint(trigger=trigger)  # the first one takes the input in
    assert (story.figures().steps, story.figures().latency_s) == (2, 0.0)


def test_usage_adds_up_with_the_names_of_its_models() -> None:
    both = usage(0.5, "b", unpriced=True) + usage(0.25, "a") + NOTHING + usage(0.25, "b", unpriced=True)
    assert both == Usage(input_tokens=30, output_tokens=3, cost_usd=1.0, models=("a", "b"), unpriced=("b",))
    assert NOTHING + both == both


def test_figures_are_read_as_they_were_written() -> None:
    for figures in (
        Figures(ms=1.5),
        Figures(ms=1.5, usage=usage(1.0), spent=usage(1.0)),
        Figures(ms=1.5, usage=usage(1.0), spent=usage(2.0), tool_errors=3),
        Figures(ms=1.5, usage=usage(1.0), is_shared=True),
        Figures(spent=usage(1.0)),
    ):
        assert Figures.from_data(figures.to_data()) == figures
    for call in (CallFigures(), CallFigures(usage=usage(1.0)), CallFigures(failures=2, failed_ms=0.5)):
        assert CallFigures.from_data(call.to_data()) == call
