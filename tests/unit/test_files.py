"""Trees of files: what they refuse, how they differ, and the merge of parallel members."""

from itertools import permutations

import pytest

from wtb.domain.errors import MergeConflict, UnsafePath
from wtb.domain.files import EMPTY_TREE, FileEntry, FileTree, TreeDelta, diff, folder_entry, link_entry, merge, tree_of
from wtb.testing.file_commits import AWKWARD, UNSAFE, many, new_file

BASE = tree_of(
    [new_file("a", "a"), new_file("b", "b"), folder_entry("d", 0o755), new_file("d/x", "x"), folder_entry("e", 0o755)]
)


def put(*entries: FileEntry) -> TreeDelta:
    return TreeDelta({entry.path: entry for entry in entries})


def removed(*paths: str) -> TreeDelta:
    return TreeDelta(removed=frozenset(paths))


@pytest.mark.parametrize("path", UNSAFE)
def test_no_tree_holds_a_path_that_leads_out(path: str) -> None:
    for entry in (new_file(path), folder_entry(path, 0o755), link_entry(path, "x")):
        with pytest.raises(UnsafePath):
            BASE.apply(put(entry))


@pytest.mark.parametrize("path", ["..x", "x..", ".wtbignore", ".wtb2", "d/.wtb", "d/...", " ", "a b", "ä", "\udcff"])
def test_names_that_only_look_odd_are_kept(path: str) -> None:
    assert BASE.apply(put(new_file(path)))[path] == new_file(path)


@pytest.mark.parametrize("parent", ["a", "link", "nowhere"])
def test_nothing_lies_in_what_is_no_folder(parent: str) -> None:
    tree = BASE.apply(put(link_entry("link", "d")))
    with pytest.raises(UnsafePath, match="not a folder"):
        tree.apply(put(new_file(f"{parent}/x")))


@pytest.mark.parametrize("change", [removed("d"), put(new_file("d")), put(link_entry("d", "/etc"))])
def test_a_folder_does_not_go_without_what_lies_in_it(change: TreeDelta) -> None:
    with pytest.raises(UnsafePath, match="d/x"):
        BASE.apply(change)


@pytest.mark.parametrize(
    "entry",
    [
        new_file("f")._replace(digest=b"short"),
        new_file("f", mode=0o4755),
        new_file("f")._replace(target="x"),
        link_entry("l", ""),
        link_entry("l", "x\0y"),
        folder_entry("f", -1),
    ],
)
def test_an_entry_that_no_scan_makes_is_refused(entry: FileEntry) -> None:
    with pytest.raises(UnsafePath):
        BASE.apply(put(entry))


def test_the_id_depends_on_every_fact_and_not_on_the_history() -> None:
    entry = new_file("f", "content")
    others = [
        entry,
        entry._replace(path="g"),
        entry._replace(mode=0o600),
        new_file("f", "other"),
        entry._replace(size=9),
        folder_entry("f", 0o644),
        link_entry("f", "x"),
        link_entry("f", "y"),
    ]
    assert len({BASE.apply(put(each)).id for each in others}) == len(others)
    assert BASE.apply(put(entry)).apply(removed("f")) == BASE
    assert BASE.apply(removed("a")).apply(put(BASE["a"])) == BASE


def test_a_tree_is_a_mapping() -> None:
    assert len(AWKWARD) == len(dict(AWKWARD)) == 6
    assert "a.b" in AWKWARD
    assert "nowhere" not in AWKWARD
    with pytest.raises(KeyError):
        AWKWARD["nowhere"]
    assert AWKWARD != "tree"


@pytest.mark.parametrize(("old", "new"), list(permutations([EMPTY_TREE, BASE, AWKWARD, many(1000), many(1001)], 2)))
def test_a_difference_makes_one_tree_of_the_other(old: FileTree, new: FileTree) -> None:
    assert old.apply(diff(old, new)) == new
    assert not diff(new, old.apply(diff(old, new)))


def test_a_difference_names_what_changed_and_nothing_else() -> None:
    new = BASE.apply(TreeDelta({"a": new_file("a", "changed")}, frozenset({"b"})))
    assert diff(BASE, new) == TreeDelta({"a": new_file("a", "changed")}, frozenset({"b"}))
    assert not diff(BASE, BASE)


def test_members_that_change_different_paths_are_merged() -> None:
    merged = merge(
        BASE,
        {
            "one": BASE.apply(put(new_file("a", "1"), new_file("d/new", "1"))),
            "two": BASE.apply(removed("b", "e")),
            "three": BASE.apply(put(new_file("d/x", "3"), folder_entry("n", 0o700), new_file("n/y"))),
            "four": BASE,
        },
    )
    changes = put(*[new_file("a", "1"), new_file("d/new", "1"), new_file("d/x", "3")])
    assert merged == BASE.apply(changes).apply(put(folder_entry("n", 0o700), new_file("n/y"))).apply(removed("b", "e"))


def test_equal_changes_are_no_conflict() -> None:
    changed = BASE.apply(TreeDelta({"a": new_file("a", "1"), "n": folder_entry("n", 0o755)}, frozenset({"b"})))
    more = changed.apply(put(new_file("n/y")))
    assert merge(BASE, {"one": changed, "two": more, "three": changed}) == more


_CONFLICTS: dict[str, tuple[str, TreeDelta, TreeDelta]] = {
    "two contents": ("a", put(new_file("a", "1")), put(new_file("a", "2"))),
    "two new files": ("n", put(new_file("n", "1")), put(new_file("n", "2"))),
    "content and mode": ("a", put(new_file("a", "1")), put(new_file("a", "a", mode=0o600))),
    "changed and removed": ("a", put(new_file("a", "1")), removed("a")),
    "two modes of a folder": ("e", put(folder_entry("e", 0o700)), put(folder_entry("e", 0o500))),
    "file and link": ("n", put(new_file("n")), put(link_entry("n", "a"))),
    "file and folder": ("n", put(new_file("n")), put(folder_entry("n", 0o755), new_file("n/y"))),
    "into a removed folder": ("e/y", put(new_file("e/y")), removed("e")),
    "into a folder that became a file": ("e/y", put(new_file("e/y")), put(new_file("e"))),
    "into a folder that became a link": ("e/y", put(new_file("e/y")), put(link_entry("e", "/"))),
    "below a removed folder": ("d/x", put(new_file("d/x", "1")), removed("d", "d/x")),
}


@pytest.mark.parametrize(("path", "one", "two"), _CONFLICTS.values(), ids=_CONFLICTS.keys())
def test_one_path_changed_by_two_names_both(path: str, one: TreeDelta, two: TreeDelta) -> None:
    sides = {"one": BASE.apply(one), "idle": BASE, "two": BASE.apply(two)}
    for order in permutations(sides):
        with pytest.raises(MergeConflict, match=f"{path!r}") as raised:
            merge(BASE, {name: sides[name] for name in order})
        assert set(raised.value.members) == {"one", "two"}
        assert raised.value.path == path
