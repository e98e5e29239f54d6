"""Settings: arguments before variables before wtb.toml before the preset, and errors that name the field."""

import json
from pathlib import Path
from typing import Any

import pytest

from wtb.domain.errors import InvalidInput
from wtb.settings import Preset, Settings, load_settings, settings_data, settings_from

pytestmark = pytest.mark.usefixtures("empty_folder")


def toml(text: str) -> None:
    Path("wtb.toml").write_text(text)


def test_without_anything_data_lies_in_a_folder_here() -> None:
    settings = load_settings()
    assert (settings.preset, settings.url, settings.folder) == (Preset.LOCAL, None, Path(".wtb"))
    assert settings.sqlite_synchronous == "NORMAL"


@pytest.mark.parametrize(
    ("preset", "url", "synchronous"),
    [("testing", "memory://", "NORMAL"), ("local", None, "NORMAL"), ("production", None, "FULL")],
)
def test_a_preset_decides_what_nothing_else_does(preset: str, url: str | None, synchronous: str) -> None:
    settings = load_settings(preset=preset)
    assert (settings.url, settings.sqlite_synchronous) == (url, synchronous)
    assert load_settings(preset=Preset(preset)) == settings


def test_a_variable_beats_the_file_and_an_argument_beats_both(monkeypatch: pytest.MonkeyPatch) -> None:
    toml('url = "sqlite:///file.db"\npool_size = 3\nbusy_timeout_s = 4')
    monkeypatch.setenv("WTB_URL", "sqlite:///variable.db")
    monkeypatch.setenv("WTB_POOL_SIZE", "7")
    settings = load_settings(pool_size=9)
    assert (settings.url, settings.pool_size, settings.busy_timeout_s) == ("sqlite:///variable.db", 9, 4)


def test_a_preset_from_the_file_or_a_variable_gives_way_to_what_is_said_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toml('preset = "testing"')
    assert load_settings().url == "memory://"
    monkeypatch.setenv("WTB_URL", "sqlite:///x.db")
    assert load_settings().url == "sqlite:///x.db"
    monkeypatch.setenv("WTB_PRESET", "production")
    assert load_settings().sqlite_synchronous == "FULL"
    assert load_settings(sqlite_synchronous="NORMAL").sqlite_synchronous == "NORMAL"


def test_an_argument_that_is_none_is_left_to_the_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_FOLDER", "elsewhere")
    assert load_settings(folder=None, url=None).folder == Path("elsewhere")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WTB_URL", "WTB_PRESET", "WTB_POOL_SIZE"):
        monkeypatch.setenv(name, "")
    assert load_settings() == Settings()


def test_variables_of_others_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTB_SOMETHING_ELSE", "1")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"preset": "prodution"}, "preset"),
        ({"preset": ["testing"]}, "preset"),
        ({"preset": {}}, "preset"),
        ({"url": 5}, "url"),
        ({"sqlite_synchronous": "OFF"}, "sqlite_synchronous"),
        ({"busy_timeout_s": 0}, "busy_timeout_s"),
        ({"busy_timeout_s": -1}, "busy_timeout_s"),
        ({"busy_timeout_s": float("nan")}, "busy_timeout_s"),
        ({"busy_timeout_s": float("inf")}, "busy_timeout_s"),
        ({"pool_size": 0}, "pool_size"),
        ({"pool_size": "many"}, "pool_size"),
        ({"polsize": 1}, "polsize"),
    ],
    ids=str,
)
def test_a_wrong_value_is_one_error_that_names_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=f"settings are wrong .*: {field}: "):
        load_settings(**given)


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"pool_size: .*; polsize: "):
        load_settings(pool_size=0, polsize=1)


@pytest.mark.parametrize("text", ["url = [", "url", "= 1", "\x00"])
def test_a_file_that_is_no_toml_is_said_to_be_so(text: str) -> None:
    toml(text)
    with pytest.raises(InvalidInput, match=r"wtb.toml cannot be read"):
        load_settings()


def test_a_file_that_is_no_text_is_said_to_be_so() -> None:
    Path("wtb.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"wtb.toml cannot be read"):
        load_settings()


def test_an_unknown_key_in_the_file_is_named() -> None:
    toml("folders = 1")
    with pytest.raises(InvalidInput, match="folders: "):
        load_settings()


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().pool_size = 3  # type: ignore[misc]


def test_a_part_of_a_setting_has_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    toml("[retention]\nkeep_days = 7")
    monkeypatch.setenv("WTB_RETENTION__KEEP_LAST", "3")
    monkeypatch.setenv("WTB_RETENTION__WORKFLOWS__NIGHTLY__KEEP_LAST", "1")
    retention = load_settings().retention
    assert (retention.keep_last, retention.keep_days, retention.policy("nightly").keep_last) == (3, 7, 1)


@pytest.mark.parametrize("name", ["WTB_SECRET_KEYS", "WTB_RETENTION"])
def test_a_variable_that_is_no_json_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "pin, puk")
    field = name.removeprefix("WTB_").lower()
    with pytest.raises(InvalidInput, match=rf'WTB_\* variable .* written as JSON: .*"{field}"'):
        load_settings()


def test_an_address_may_begin_with_postgres_as_others_write_it() -> None:
    assert load_settings(url="postgres://me@host/db").url == "postgresql://me@host/db"
    assert load_settings(url="postgresql://me@host/db").url == "postgresql://me@host/db"


def test_another_process_gets_the_same_settings_whatever_its_folder_and_its_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toml('[retention]\nkeep_workspaces_days = "never"\n[retention.workflows.agent]\nkeep_last = 3')
    here = load_settings(url="sqlite:///data.db", judge_key="k", secret_keys=("iban",))
    sent = json.loads(json.dumps(settings_data(here)))
    Path("elsewhere").mkdir()
    folder = Path.cwd()
    monkeypatch.chdir("elsewhere")
    monkeypatch.setenv("WTB_POOL_SIZE", "50")
    monkeypatch.setenv("WTB_URL", "memory://")
    there = settings_from(sent)
    assert there == here.model_copy(update={"folder": folder / ".wtb", "url": f"sqlite:///{folder}/data.db"})


def test_no_other_process_can_open_a_store_in_memory() -> None:
    assert settings_data(load_settings(url="memory://")) is None
