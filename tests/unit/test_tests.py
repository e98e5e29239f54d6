"""The tests and the source keep to rules that no other tool checks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^\s*(?:from|import)\s+(?:tests\b|\.)(?:.*|.*\([^)]*)\btest_\w+", re.MULTILINE)
"""Also in the text of a program that a test starts."""


def test_no_test_module_is_imported_by_another_module() -> None:
    """What tests share is in a helper module beside them, whose name does not begin with test_."""
    modules = [*(ROOT / "tests").rglob("*.py")]
    found = {str(path.relative_to(ROOT)): IMPORT.findall(path.read_text()) for path in modules}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_imports_of_test_modules_are_recognised() -> None:
    assert IMPORT.search("import wtb\nfrom tests.unit.test_history import Story\n")
    assert IMPORT.search("from tests.unit import run_story, test_history\n")
    assert IMPORT.search("    import tests.unit.test_history as history\n")
    assert IMPORT.search("from tests.unit import (\n    run_story,\n    test_history,\n)\n")
    assert IMPORT.search("from .test_history import Story\n")
    assert not IMPORT.search("from tests.unit.run_story import Story\nfrom wtb.testing import test_fakes\n")


def test_a_class_name_means_one_class() -> None:
    defined = Counter(name for path in (ROOT / "src" / "wtb").rglob("*.py") for name in classes(path))
    assert [name for name, times in defined.items() if times > 1] == []


def classes(path: Path) -> Iterator[str]:
    """Return the names of the classes that a module defines, also inside others."""
    return (node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def test_no_entry_point_opens_a_unit_of_work() -> None:
    """They read through queries and write through services; import-linter does not see attributes of attributes."""
    source = ROOT / "src" / "wtb"
    modules = [*source.glob("*.py"), *(source / "cli").rglob("*.py"), *(source / "reporting").rglob("*.py")]
    entry_points = [path for path in modules if path.name != "bootstrap.py"]
    assert source / "cli" / "commands" / "show.py" in entry_points
    assert [str(path.relative_to(ROOT)) for path in entry_points if "unit_of_work" in attributes(path)] == []


def attributes(path: Path) -> set[str]:
    """Return the names of the attributes that a module uses."""
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
