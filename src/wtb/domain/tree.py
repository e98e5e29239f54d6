"""HistoryTree: all lines of a run as a tree, including forks and lines that rollbacks left behind.

The line to the active head goes straight through; other lines leave it where they parted. If no line is active, the
longest goes straight on, so that the nesting is no deeper than the logarithm of the number of lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.domain.checkpoint import Checkpoint, Kind
from wtb.domain.display import Display, Displayed
from wtb.domain.execution import Branch
from wtb.domain.history import ExecutionHistory
from wtb.domain.ids import CheckpointId, ExecutionId

_FEWEST_FOLDED = 3
"""The fewest steps in a row that are folded into one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeStep:
    """One checkpoint with the branches that end there, the lines that leave it, and the forks into other runs."""

    checkpoint: Checkpoint
    visits: tuple[tuple[str, int], ...] = ()
    """The node visits that ended with it; several at the barrier of a parallel superstep."""
    heads: tuple[Branch, ...] = ()
    active: bool = False
    """Whether this is the current position of the run."""
    lines: tuple[TreeLine, ...] = ()
    forks: tuple[Branch, ...] = ()

    @property
    def remarkable(self) -> bool:
        """Whether it must be shown as a line of its own."""
        checkpoint = self.checkpoint
        special = checkpoint.parent_id is None or checkpoint.name is not None or checkpoint.kind is not Kind.AUTO
        return special or bool(self.heads or self.lines or self.forks)

    @property
    def is_safety_copy(self) -> bool:
        """Whether it only keeps the position before a rollback, and nothing has followed it since."""
        return self.checkpoint.kind is Kind.SYSTEM and not (self.heads or self.lines or self.forks)

    def to_dict(self) -> dict[str, Any]:
        """Return it, and what leaves from it, as data."""
        checkpoint = self.checkpoint
        return {
            "checkpoint": checkpoint.id,
            "run": checkpoint.execution_id,
            "step": checkpoint.step,
            "visits": [{"node": node, "visit": visit} for node, visit in self.visits],
            "trigger": checkpoint.trigger.value,
            "kind": checkpoint.kind.value,
            "name": checkpoint.name,
            "at": checkpoint.created_at,
            "deleted": checkpoint.deleted,
            "heads": [branch.name for branch in self.heads],
            "active": self.active,
            "lines": [line.to_dict() for line in self.lines],
            "forks": [{"run": fork.execution_id, "branch": fork.name, "head": fork.head_id} for fork in self.forks],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """Checkpoints that follow each other. An abandoned line leads to no head of a branch."""

    steps: tuple[TreeStep, ...]
    abandoned: bool = False

    @property
    def safety_copy(self) -> CheckpointId | None:
        """The last checkpoint of an abandoned line, if it only keeps the position before a rollback."""
        last = self.steps[-1]
        return last.checkpoint.id if self.abandoned and last.is_safety_copy else None

    def folded(self) -> Iterator[TreeStep | tuple[TreeStep, ...]]:
        """Yield the steps, unremarkable ones in a row as one tuple; the first and the last are always single.

        The safety copy at the end of an abandoned line is left out; it may be all that the line has.
        """
        row: list[TreeStep] = []
        steps = self.steps if self.safety_copy is None else self.steps[:-1]
        for number, step in enumerate(steps):
            if 0 < number < len(steps) - 1 and not step.remarkable:
                row.append(step)
                continue
            yield from [tuple(row)] if len(row) >= _FEWEST_FOLDED else row
            row = []
            yield step

    def to_dict(self) -> dict[str, Any]:
        """Return it as data."""
        return {"abandoned": self.abandoned, "steps": [step.to_dict() for step in self.steps]}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTree(Displayed):
    """All lines of a run; there is one root, unless the beginning of a line is gone."""

    execution_id: ExecutionId
    lines: tuple[TreeLine, ...]

    def _display(self) -> Display:
        lines = [text for line in self.lines for text in _drawn(line, "")]
        return Display(title=f"Run {self.execution_id}", lines=tuple(lines))

    @classmethod
    def of(cls, history: ExecutionHistory, forks: Iterable[Branch] = ()) -> HistoryTree:
        """Build the tree of a run; `forks` are branches of other runs that left from its checkpoints."""
        return cls(execution_id=history.execution_id, lines=_TreeBuilder(history, forks).lines())

    def to_dict(self) -> dict[str, Any]:
        """Return it as data."""
        return {"run": self.execution_id, "lines": [line.to_dict() for line in self.lines]}


def _drawn(line: TreeLine, indent: str) -> Iterator[str]:
    """Yield the text of a line step by step; lines that leave it are indented below the step that they leave."""
    for step in line.folded():
        if isinstance(step, tuple):
            yield f"{indent}│ … {len(step)} steps"
            continue
        yield f"{indent}{'●' if step.active else '○'} {_step_text(step)}"
        for leaving in step.lines:
            yield from _drawn(leaving, f"{indent}│   ")
        yield from (f"{indent}│   fork: run {fork.execution_id}" for fork in step.forks)


def _step_text(step: TreeStep) -> str:
    nodes = ", ".join(f"{node}#{visit}" for node, visit in step.visits) or step.checkpoint.trigger.value
    name = f" {step.checkpoint.name!r}" if step.checkpoint.name else ""
    heads = "".join(f" ← {branch.name}" for branch in step.heads)
    return f"{step.checkpoint.step} {nodes}{name}{heads}"


class _TreeBuilder:
    """Builds the tree from facts about each checkpoint; nothing here is recursive, because lines are long."""

    def __init__(self, history: ExecutionHistory, forks: Iterable[Branch]) -> None:
        self._active = history.branch().head_id
        self._by_id = {checkpoint.id: checkpoint for checkpoint in history.checkpoints}
        self._children: dict[CheckpointId | None, list[Checkpoint]] = defaultdict(list)
        for checkpoint in sorted(history.checkpoints, key=lambda each: (each.created_at, each.id)):
            parent = checkpoint.parent_id if checkpoint.parent_id in self._by_id else None
            self._children[parent].append(checkpoint)
        self._heads = _grouped((branch.head_id, branch) for branch in history.branches)
        self._forks = _grouped((fork.forked_from_id, fork) for fork in forks)
        self._visits = _grouped((run.last_id, (run.node, run.visit)) for run in history.node_runs)
        self._order = self._parents_first()
        self._sizes = self._subtree_sizes()
        self._on_active = set(self._back_from([self._active]))
        self._alive = set(self._back_from(self._heads))

    def _parents_first(self) -> list[Checkpoint]:
        order, waiting = list[Checkpoint](), list(self._children[None])
        while waiting:
            order.append(waiting.pop())
            waiting += self._children.get(order[-1].id, ())
        return order

    def _subtree_sizes(self) -> dict[CheckpointId, int]:
        sizes: dict[CheckpointId, int] = {}
        for checkpoint in reversed(self._order):
            children = self._children.get(checkpoint.id, ())
            sizes[checkpoint.id] = 1 + sum(sizes[child.id] for child in children)
        return sizes

    def _back_from(self, ends: Iterable[CheckpointId | None]) -> Iterator[CheckpointId]:
        """Yield these checkpoints and all before them."""
        seen: set[CheckpointId] = set()
        for end in ends:
            at = self._by_id.get(end) if end is not None else None
            while at is not None and at.id not in seen:
                seen.add(at.id)
                yield at.id
                at = self._by_id.get(at.parent_id) if at.parent_id is not None else None

    def lines(self) -> tuple[TreeLine, ...]:
        """Return the lines that begin at roots; each line is built after all lines that leave it."""
        made: dict[CheckpointId, TreeLine] = {}
        following = {checkpoint.id: self._following(checkpoint) for checkpoint in self._order}
        begins = [each for each in self._order if each.parent_id is None or following.get(each.parent_id) is not each]
        for begin in reversed(begins):
            made[begin.id] = self._line(begin, following, made)
        return tuple(made[root.id] for root in self._children[None])

    def _following(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the child that goes straight on: on the active line, else on the longest; never an abandoned one."""
        alive = checkpoint.id in self._alive
        if checkpoint.id == self._active:
            return None
        children = [child for child in self._children.get(checkpoint.id, ()) if (child.id in self._alive) is alive]
        return max(children, key=lambda child: (child.id in self._on_active, self._sizes[child.id]), default=None)

    def _line(
        self,
        begin: Checkpoint,
        following: dict[CheckpointId, Checkpoint | None],
        made: dict[CheckpointId, TreeLine],
    ) -> TreeLine:
        steps: list[TreeStep] = []
        at: Checkpoint | None = begin
        while at is not None:
            straight = following[at.id]
            leaving = [made[child.id] for child in self._children.get(at.id, ()) if child is not straight]
            steps.append(self._step(at, leaving))
            at = straight
        return TreeLine(steps=tuple(steps), abandoned=begin.id not in self._alive)

    def _step(self, checkpoint: Checkpoint, leaving: Sequence[TreeLine]) -> TreeStep:
        own = ((checkpoint.node, checkpoint.visit or 1),) if checkpoint.node else None
        return TreeStep(
            checkpoint=checkpoint,
            visits=own or tuple(self._visits.get(checkpoint.id, ())),
            heads=tuple(self._heads.get(checkpoint.id, ())),
            active=checkpoint.id == self._active,
            lines=tuple(leaving),
            forks=tuple(self._forks.get(checkpoint.id, ())),
        )


def _grouped(pairs: Iterable[tuple[CheckpointId | None, Any]]) -> dict[CheckpointId, list[Any]]:
    groups: dict[CheckpointId, list[Any]] = defaultdict(list)
    for key, value in pairs:
        if key is not None:
            groups[key].append(value)
    return groups
