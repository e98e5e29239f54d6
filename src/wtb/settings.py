"""Settings: from arguments, WTB_* variables and wtb.toml, in that order, on top of a preset."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from wtb.domain.errors import InvalidInput
from wtb.domain.retention import RetentionPolicy


class Preset(StrEnum):
    """What WTB is used for; decides the defaults of everything else."""

    TESTING = "testing"
    LOCAL = "local"
    PRODUCTION = "production"


_PRESETS: dict[Preset, dict[str, Any]] = {
    Preset.TESTING: {"url": "memory://"},
    Preset.LOCAL: {},
    Preset.PRODUCTION: {"sqlite_synchronous": "FULL", "checkpoint_failure": "fatal"},
}


WorkspaceDays = Annotated[float, Field(ge=0, le=1_000_000)] | Literal["never"]
"""After how many days folders may go."""


class WorkflowRetention(BaseModel):
    """What one workflow keeps instead; what is left out is as for all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_last: int | None = Field(default=None, ge=0)
    keep_days: float | None = Field(default=None, ge=0, le=1_000_000)
    keep_workspaces_days: WorkspaceDays | None = None


class RetentionSettings(BaseModel):
    """How many automatic checkpoints `wtb prune` leaves a run, for how many days, and for how many days the folders of
    runs that have ended (`never` removes none); `workflows` says it by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_last: int = Field(default=20, ge=0)
    keep_days: float = Field(default=90, ge=0, le=1_000_000)
    keep_workspaces_days: WorkspaceDays = 7
    workflows: dict[str, WorkflowRetention] = {}

    def policy(self, workflow: str) -> RetentionPolicy:
        """Return what holds for the runs of a workflow."""
        own = self.workflows.get(workflow, WorkflowRetention())
        folders = self.keep_workspaces_days if own.keep_workspaces_days is None else own.keep_workspaces_days
        return RetentionPolicy(
            keep_last=self.keep_last if own.keep_last is None else own.keep_last,
            keep_days=self.keep_days if own.keep_days is None else own.keep_days,
            keep_workspaces_days=None if folders == "never" else folders,
        )


class Settings(BaseSettings):
    """Where data lives and how carefully it is kept.

    `url` is `memory://`, `sqlite:///path` or `postgresql://…`; without one everything lies in `folder`, whose
    database is migrated automatically. NORMAL survives the death of the process, FULL that of the machine. A
    checkpoint that cannot be written is made up for with the next one (`warn`), or ends the run (`fatal`). What
    `secret_keys` and `secret_patterns` say is masked in events, logs and errors, beside what always is. `retention` is
    what `wtb prune` goes by; what nothing refers to is collected once it was not used for `sweep_grace_s`, which must
    be longer than any step takes to store its files.
    """

    model_config = SettingsConfigDict(
        env_prefix="WTB_",
        env_nested_delimiter="__",
        env_ignore_empty=True,  # `WTB_URL= wtb …` is how a shell leaves a variable out
        toml_file="wtb.toml",
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    preset: Preset = Preset.LOCAL
    url: str | None = None
    folder: Path = Path(".wtb")
    sqlite_synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    busy_timeout_s: float = Field(default=30.0, gt=0, le=86_400)
    pool_size: int = Field(default=5, ge=1)
    checkpoint_failure: Literal["warn", "fatal"] = "warn"
    secret_keys: tuple[str, ...] = ()
    secret_patterns: tuple[str, ...] = ()
    retention: RetentionSettings = RetentionSettings()
    sweep_grace_s: float = Field(default=3600.0, ge=0, le=31_536_000)

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        preset = values.get("preset")
        return {**(_PRESETS.get(Preset(preset), {}) if preset in list(Preset) else {}), **values}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**given: Any) -> Settings:
    """Return the settings in force; what was given as None is left to the other sources."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise InvalidInput(f"settings are wrong (arguments, WTB_* variables or wtb.toml): {faults}") from error
    except SettingsError as error:  # the only source in which a list is written as text
        why = f"{error} ({error.__cause__})"
        raise InvalidInput(f"a WTB_* variable that holds a list or a table is written as JSON: {why}") from error
    except (ValueError, OSError) as error:  # wtb.toml that is no TOML, or may not be read
        raise InvalidInput(f"wtb.toml cannot be read: {error}") from error
