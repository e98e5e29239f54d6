"""The search through the loaded modules remembers files of libraries, and never overlooks a change."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from wtb.application.dependencies.loaded_modules import LoadedModules
from wtb.application.dependencies.sources import own_path

OWN, LIBRARY = "/home/ann/project/ann.py", "/usr/lib/python3/site-packages/ann.py"


@pytest.fixture
def modules() -> LoadedModules:
    """A search for own files that has seen all modules once."""
    search = LoadedModules(lambda file: "site-packages" not in file and "ann" in file)
    search.now()
    return search


def put(monkeypatch: pytest.MonkeyPatch, file: str | None, name: str = "ann") -> ModuleType:
    module = ModuleType(name)
    if file is not None:
        module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)
    return module


def names(search: LoadedModules) -> list[str]:
    return [name for held in search.now() if (name := held["__name__"]).startswith("ann")]


def test_a_module_that_is_loaded_later_is_seen(modules: LoadedModules, monkeypatch: pytest.MonkeyPatch) -> None:
    module = put(monkeypatch, OWN)
    assert [held is vars(module) for held in modules.now() if held["__name__"] == "ann"] == [True]


def test_a_module_that_takes_the_place_of_another_is_seen(
    modules: LoadedModules, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, LIBRARY)
    assert names(modules) == []
    put(monkeypatch, OWN)
    assert names(modules) == ["ann"]
    put(monkeypatch, LIBRARY)
    assert names(modules) == []


def test_a_module_that_moves_to_another_file_is_seen(modules: LoadedModules, monkeypatch: pytest.MonkeyPatch) -> None:
    module = put(monkeypatch, LIBRARY)
    assert names(modules) == []
    module.__file__ = OWN
    assert names(modules) == ["ann"]


def test_a_module_without_a_file_is_seen_once_it_has_one(
    modules: LoadedModules, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = put(monkeypatch, None)
    assert names(modules) == []
    module.__file__ = OWN
    assert names(modules) == ["ann"]


def test_a_module_that_is_gone_is_not_listed(modules: LoadedModules, monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, OWN)
    assert names(modules) == ["ann"]
    monkeypatch.delitem(sys.modules, "ann")
    assert names(modules) == []


def test_a_lazy_module_is_not_made_to_load(modules: LoadedModules, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} was asked for")

    monkeypatch.setitem(sys.modules, "ann_lazy", Lazy("ann_lazy"))
    monkeypatch.setitem(sys.modules, "ann_absent", None)
    assert names(modules) == []


def test_a_reloaded_module_shows_its_new_contents(
    modules: LoadedModules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ann_reloaded.py"
    file.write_text("FIRST = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("ann_reloaded")
    try:
        assert [held["FIRST"] for held in modules.now() if held["__name__"] == "ann_reloaded"] == [1]
        file.write_text("SECOND = 22\n")
        importlib.reload(module)
        assert [held["SECOND"] for held in modules.now() if held["__name__"] == "ann_reloaded"] == [22]
    finally:
        del sys.modules["ann_reloaded"]


def test_a_relative_file_means_another_one_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    search = LoadedModules(lambda file: (own_path(file) or "").startswith(str(there)))
    put(monkeypatch, "ann.py")
    monkeypatch.chdir(here)
    assert (names(search), own_path("ann.py")) == ([], str(here / "ann.py"))
    monkeypatch.chdir(there)
    assert (names(search), own_path("ann.py")) == (["ann"], str(there / "ann.py"))
