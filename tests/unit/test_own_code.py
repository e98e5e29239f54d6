"""The root of a project: file names in fingerprints are relative to it, wherever a command is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from wtb.application.dependencies.own_code import is_installed, project_root


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


def test_packages_of_another_virtual_environment_on_the_path_are_not_the_users_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "base" / "site-packages"
    monkeypatch.syspath_prepend(packages)
    assert is_installed(str(packages / "library.py"))
    assert not is_installed(str(tmp_path / "base" / "mine.py"))
