"""`wtb export`, and the list of files in `wtb show --files`."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import click

from wtb.application.queries.views import FileTotals
from wtb.bench import Bench
from wtb.cli.output import as_json, example, show, size, url
from wtb.domain.display import counted
from wtb.domain.files import EntryKind, FileTree, path_bytes

_TYPES = {EntryKind.FILE: stat.S_IFREG, EntryKind.FOLDER: stat.S_IFDIR, EntryKind.LINK: stat.S_IFLNK}


@click.command()
@click.argument("place", metavar="RUN[@CHECKPOINT]")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@url
@as_json
@example("wtb export first answer", "wtb export first@draft#2 second-draft")
def export(*, place: str, folder: Path, url: str | None, as_json: bool) -> None:
    """Write the workspace files of a run into DIR.

    You get the files at the last step, or at CHECKPOINT: a step number, a node (the latest visit), node#2 (the second
    visit), a name, or the start of an id. Permissions are restored too. DIR must be empty or not exist yet.
    """
    run_id, at, checkpoint = place.partition("@")
    with Bench(url) as bench:
        run = bench.get(run_id)
        tree = run.export(folder, checkpoint if at else None)
    files, size_bytes = FileTotals.of(tree)
    result = {"run": run.id, "checkpoint": checkpoint or None, "folder": str(folder)}
    text = f"Wrote {counted(files, 'file')}, {size(size_bytes)}, into {folder}."
    show({**result, "files": files, "bytes": size_bytes}, text, as_json=as_json)


def rows_for_programs(tree: FileTree) -> list[dict[str, Any]]:
    """Return the entries of a tree, sorted by path; a link has its target."""
    return [
        {
            "path": entry.path,
            "kind": entry.kind.value,
            "mode": f"{entry.mode:04o}",
            "size": entry.size,
            "target": entry.target or None,
        }
        for _, entry in sorted(tree.items())
    ]


def rows_for_people(tree: FileTree) -> list[dict[str, Any]]:
    """Return the entries of a tree in the style of `ls -l`."""
    return [
        {
            "mode": stat.filemode(_TYPES[entry.kind] | entry.mode),
            "size": entry.size if entry.kind is EntryKind.FILE else "",
            "path": readable(f"{entry.path} -> {entry.target}" if entry.target else entry.path),
        }
        for _, entry in sorted(tree.items())
    ]


def readable(path: str) -> str:
    """Return a path that any terminal can print; invalid UTF-8 becomes question marks."""
    return path_bytes(path).decode("utf-8", "replace")
