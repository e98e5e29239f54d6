"""`wtb history --tree`: the history of a run as a tree."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from rich.tree import Tree

from wtb.cli.output import Terminal, moment
from wtb.domain.checkpoint import Kind, Trigger
from wtb.domain.display import counted
from wtb.domain.execution import Branch
from wtb.domain.printable import printable
from wtb.domain.tree import HistoryTree, TreeLine, TreeStep


def print_tree(tree: HistoryTree, *, unfolded: bool) -> None:
    """Draw the tree; plain steps in a row are folded into one line unless `unfolded`."""
    root = Tree(Text(f"run {tree.execution_id}", "bold"))
    for line in tree.lines:
        _grow(root, tree, line, unfolded=unfolded)
    Terminal.whole_lines().print(root)


def _grow(root: Tree, tree: HistoryTree, line: TreeLine, *, unfolded: bool) -> None:
    for item in line.steps if unfolded else line.folded():
        if not isinstance(item, TreeStep):
            root.add(_folded(item))
            continue
        node = root.add(_label(tree, item, abandoned=line.abandoned))
        for other in item.lines:
            if not unfolded and not any(other.folded()):
                continue
            _grow(node.add(_line_label(other)), tree, other, unfolded=unfolded)
        for fork in item.forks:
            node.add(Text(f"run {fork.execution_id}, branch {printable(fork.name)}", "magenta"))


def _label(tree: HistoryTree, step: TreeStep, *, abandoned: bool) -> Text:
    checkpoint = step.checkpoint
    nodes = " + ".join(f"{node}#{visit}" if visit > 1 else node for node, visit in step.visits)
    kind = "safety copy" if checkpoint.kind is Kind.SYSTEM else checkpoint.trigger
    edit = checkpoint.description if checkpoint.trigger is Trigger.PAUSE else ""
    label = Text(f"{checkpoint.step} {printable(nodes) or printable(edit) or kind}")
    if checkpoint.name:
        label.append(f" {printable(repr(checkpoint.name))}", "yellow")
    if checkpoint.execution_id != tree.execution_id:
        label.append(f"  of run {checkpoint.execution_id}", "magenta")
    label.append(f"  {moment(checkpoint.created_at)}  {checkpoint.id[:18]}", "dim")
    if checkpoint.deleted:
        label.append("  deleted")
    if step.heads:
        label.append(f"  ← {_names(step.heads)}", "bold green" if step.active else "cyan")
    if step.active:
        label.append(" (here)", "bold green")
    if checkpoint.deleted or abandoned:
        label.stylize("dim")
    return label


def _line_label(line: TreeLine) -> Text:
    if line.abandoned:
        return Text("abandoned", "dim")
    return Text(_names(branch for step in line.steps for branch in step.heads), "cyan")


def _names(branches: Iterable[Branch]) -> str:
    return ", ".join(printable(branch.name) for branch in branches)


def _folded(steps: tuple[TreeStep, ...]) -> Text:
    deleted = sum(step.checkpoint.deleted for step in steps)
    return Text(f"… {counted(len(steps), 'step')}{f', {deleted:,} of them deleted' if deleted else ''}", "dim")
