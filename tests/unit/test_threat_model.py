"""Every line of the threat model has a test behind it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_that_the_threat_model_names_exist() -> None:
    page = (ROOT / "docs/threat-model.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|") and not line.startswith(("| who", "|---"))]
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"(?:def|class) ([Tt]est\w+)", sources))
    named = [re.findall(r"`([Tt]est\w+)`", row.rsplit("|", 2)[1]) for row in rows]
    assert all(named)
    assert {name for names in named for name in names} <= known
