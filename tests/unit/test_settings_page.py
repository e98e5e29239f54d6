"""docs/settings.md names every setting with its default and its variable, and its example is one that works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from wtb.domain.secrets import SECRET_KEYS
from wtb.settings import Preset, Settings, WorkflowRetention, load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()

pytestmark = pytest.mark.usefixtures("empty_folder")


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def variable(name: str) -> str:
    return f"WTB_{name.replace('.', '__').upper()}"


@pytest.mark.parametrize(("name", "field"), [pytest.param(*each, id=each[0]) for each in fields(Settings)])
def test_a_setting_is_listed_with_its_default_and_its_variable(name: str, field: FieldInfo) -> None:
    anchor = name.replace(".", "")
    (default, listed) = re.findall(rf"^\| \[`{name}`\]\(#{anchor}\) \| (.*) \| `(\w+)` \|$", PAGE, re.MULTILINE)[0]
    assert listed == variable(name)
    if field.default in (None, (), {}):
        assert default.startswith("none")
    else:
        assert default == f"`{field.default}`"
    assert re.search(rf"^#### {name}\n\n\S", PAGE, re.MULTILINE)


def test_no_setting_is_listed_that_there_is_not() -> None:
    assert set(re.findall(r"^#### (\S+)$", PAGE, re.MULTILINE)) == {name for name, _ in fields(Settings)}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("preset", "production", "production"),
        ("url", "sqlite:///bench.db", "sqlite:///bench.db"),
        ("folder", "elsewhere", Path("elsewhere")),
        ("sqlite_synchronous", "FULL", "FULL"),
        ("checkpoint_failure", "fatal", "fatal"),
        ("busy_timeout_s", "86400", 86_400),
        ("user", "alice", "alice"),
        ("pool_size", "1", 1),
        ("outage_timeout_s", "0", 0),
        ("secret_keys", '["pin", "iban"]', ("pin", "iban")),
        ("secret_patterns", r'["\\bCUST"]', (r"\bCUST",)),
        ("retention.keep_last", "0", 0),
        ("retention.keep_days", "0.5", 0.5),
        ("retention.keep_workspaces_days", "0", 0),
        ("retention.keep_workspaces_days", "never", "never"),
        ("retention.workflows", '{"Nightly": {"keep_last": 3}}', {"Nightly": WorkflowRetention(keep_last=3)}),
        ("sweep_grace_s", "31536000", 31_536_000),
    ],
)
def test_the_variable_of_a_setting_sets_it(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any) -> None:
    monkeypatch.setenv(variable(name), text)
    found: Any = load_settings()
    for part in name.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize("name", WorkflowRetention.model_fields)
def test_what_a_workflow_can_have_of_its_own_is_named(name: str) -> None:
    assert f"`retention.workflows.NAME.{name}`" in PAGE
    assert f"`{variable('retention.workflows.nightly')}__{name.upper()}`" in PAGE


def cells(row: str) -> list[str]:
    return [cell.strip(" `") for cell in row.strip("|").split("|")]


def test_the_table_of_the_presets_is_what_they_change() -> None:
    (heading, _, *rows) = map(cells, re.findall(r"^\|.*\|$", PAGE[PAGE.index("## Presets") :], re.MULTILINE))
    presets = heading[1:]
    assert sorted(presets) == sorted(Preset)
    listed = {name: values for name, *values in rows}
    found = {preset: load_settings(preset=preset) for preset in presets}
    for name in Settings.model_fields:
        values = [getattr(found[preset], name) for preset in presets]
        if name in listed:
            assert listed[name] == [str(value or "SQLite in `folder") for value in values]
        elif name != "preset":
            assert len({str(value) for value in values}) == 1, f"presets differ in {name}"


def test_the_example_loads() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    Path("wtb.toml").write_text(example)
    settings = load_settings()
    assert (settings.preset, settings.pool_size, settings.secret_keys) == (Preset.PRODUCTION, 10, ("pin", "iban"))
    assert settings.retention.policy("nightly").keep_last == 3
    assert settings.retention.policy("other").keep_days == 365
    assert settings.retention.policy("nightly").keep_workspaces_days == 1
    assert settings.retention.policy("other").keep_workspaces_days is None


def test_all_keys_that_are_masked_anyway_are_named() -> None:
    (sentence,) = re.findall(r"Built in are `password`.*?\.\n", PAGE, re.DOTALL)
    assert re.findall(r"`(\w+)`", sentence) == list(SECRET_KEYS)
