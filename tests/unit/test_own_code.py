"""What is the user's own code, and the root of a project: file names in fingerprints are relative to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wtb.application.dependencies import own_code
from wtb.application.dependencies.own_code import project_root


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


def test_packages_of_an_environment_below_this_one_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "base" / "lib" / "site-packages"
    monkeypatch.setattr(sys, "path", [*sys.path, str(below)])
    installed = own_code._installed.__wrapped__()  # as a new process finds it
    assert f"{below}/library.py".startswith(installed)
    assert not f"{tmp_path}/project/flow.py".startswith(installed)
