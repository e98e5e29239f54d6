"""Which code is the user's own, and the root of a project, to which file names in fingerprints are relative."""

from __future__ import annotations

from pathlib import Path

import pytest

from wtb.application.dependencies.own_code import is_own_file, project_root


@pytest.mark.parametrize("mark", [".git", "pyproject.toml"])
def test_a_store_in_a_subfolder_does_not_make_it_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    (tmp_path / mark).mkdir()
    sub = tmp_path / "sub"
    (sub / ".wtb").mkdir(parents=True)
    monkeypatch.chdir(sub)
    assert project_root() == tmp_path.resolve()


def test_a_project_that_has_nothing_else_is_known_by_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".wtb").mkdir()
    sub = tmp_path / "sub"
    sub.mkdir()
    monkeypatch.chdir(sub)
    assert project_root() == tmp_path.resolve()


def test_packages_of_another_environment_are_nobodys_own_code(tmp_path: Path) -> None:
    for folder in ("site-packages", "dist-packages"):
        assert not is_own_file(str(tmp_path / "base" / folder / "library" / "part.py"))
    assert is_own_file(str(tmp_path / "project" / "agent.py"))
