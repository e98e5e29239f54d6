"""Settings, read from arguments, then WTB_* variables, then wtb.toml, on top of a preset."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from wtb.domain.access import Role
from wtb.domain.errors import InvalidInput
from wtb.domain.job_limits import JOB_TIMEOUT_S
from wtb.domain.retention import RetentionPolicy


class Preset(StrEnum):
    """What you use WTB for; it decides the defaults of the other settings."""

    TESTING = "testing"
    LOCAL = "local"
    PRODUCTION = "production"


_PRESETS: dict[Preset, dict[str, Any]] = {
    Preset.TESTING: {"url": "memory://"},
    Preset.LOCAL: {},
    Preset.PRODUCTION: {"sqlite_synchronous": "FULL", "checkpoint_failure": "fatal", "job_timeout_s": 7_200.0},
}


WorkspaceDays = Annotated[float, Field(ge=0, le=1_000_000)] | Literal["never"]
"""After how many days folders may be deleted."""


class WorkflowRetention(BaseModel):
    """The retention rules of one workflow; a rule that is left out is the same as for all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_last: int | None = Field(default=None, ge=0)
    keep_days: float | None = Field(default=None, ge=0, le=1_000_000)
    keep_workspaces_days: WorkspaceDays | None = None


class RetentionSettings(BaseModel):
    """What `wtb prune` leaves of each run.

    It keeps at most `keep_last` automatic checkpoints, and none older than `keep_days`. It keeps the folders of ended
    runs for `keep_workspaces_days` (`never` deletes none). `workflows` sets this for single workflows, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_last: int = Field(default=20, ge=0)
    keep_days: float = Field(default=90, ge=0, le=1_000_000)
    keep_workspaces_days: WorkspaceDays = 7
    workflows: dict[str, WorkflowRetention] = {}

    def policy(self, workflow: str) -> RetentionPolicy:
        """Return the rules for the runs of one workflow."""
        own = self.workflows.get(workflow, WorkflowRetention())
        folders = self.keep_workspaces_days if own.keep_workspaces_days is None else own.keep_workspaces_days
        return RetentionPolicy(
            keep_last=self.keep_last if own.keep_last is None else own.keep_last,
            keep_days=self.keep_days if own.keep_days is None else own.keep_days,
            keep_workspaces_days=None if folders == "never" else folders,
        )


Interval = Annotated[float, Field(ge=1, le=31_536_000)] | Literal["never"]
"""The seconds between two runs of a background job."""


class BackgroundSettings(BaseModel):
    """How often a server does what, in seconds; `never` turns a job off. One of several servers does each of them.

    - `retention_s`: delete old checkpoints and unused data, as `wtb prune` does.
    - `workspaces_s`: delete the folders of ended runs, as `wtb prune` does.
    - `abandoned_runs_s`: pause runs whose process has been silent for an hour.
    - `doctor_s`: verify a part of the store for some seconds.
    - `expired_s`: delete what has expired: sign-ins, finished commands, delivered events.
    - `webhooks_s`: how soon to look again whether there are webhooks; once there are, they get events every second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    retention_s: Interval = 86_400.0
    workspaces_s: Interval = 86_400.0
    abandoned_runs_s: Interval = 300.0
    doctor_s: Interval = 3_600.0
    expired_s: Interval = 3_600.0
    webhooks_s: Interval = 5.0

    @property
    def intervals(self) -> Mapping[str, float | None]:
        """The interval of each job by its name; None if it is turned off."""
        given = {name.removesuffix("_s"): getattr(self, name) for name in type(self).model_fields}
        return {name: None if seconds == "never" else float(seconds) for name, seconds in given.items()}


class ServerSettings(BaseModel):
    """What `wtb serve` serves, to whom, and with which limits.

    - `host`, `port`: where it listens. Another host than this machine needs a token and TLS.
    - `workflows`, `batches`: references of what it may run, as `agent.py:flow`.
    - `certificate`, `certificate_key`: files for TLS.
    - `trusted_proxy`: the address of a proxy that does TLS instead.
    - `loopback_role`: the role of a browser on this machine that signs in with the link of `wtb serve`.
    - `allowed_hosts`: further names under which browsers reach it.
    - `workers`: how many commands it carries out at a time.
    - `requests_per_minute`: how many requests one token may send.
    - `feeds_per_caller`: how many feeds of events one token may follow at once.
    - `largest_body_bytes`: how large a request may be.
    - `langgraph`: whether LangGraph's SDKs and chat front ends may connect, at `/langgraph`.
    - `webhooks_to_private_addresses`: whether webhooks may go to this machine and to private networks.
    - `background`: how often it does what beside requests.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8383, ge=0, le=65_535)
    workflows: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    certificate: Path | None = None
    certificate_key: Path | None = None
    trusted_proxy: str | None = None
    loopback_role: Role = Role.ADMIN
    allowed_hosts: tuple[str, ...] = ()
    workers: int = Field(default=4, ge=1, le=256)
    requests_per_minute: int = Field(default=600, ge=1)
    feeds_per_caller: int = Field(default=50, ge=1)
    largest_body_bytes: int = Field(default=4 << 20, ge=1_024)
    langgraph: bool = False
    webhooks_to_private_addresses: bool = False
    background: BackgroundSettings = BackgroundSettings()


def _printable(name: str) -> str:
    name = name.strip()
    if not name or not name.isprintable():
        raise ValueError("a name needs at least one character, and no line breaks or control characters")
    return name


def _full_scheme(url: str) -> str:
    """Return an address in SQLAlchemy's form; other programs also write postgres://."""
    return f"postgresql://{url.removeprefix('postgres://')}" if url.startswith("postgres://") else url


def _object_place(place: str) -> str:
    """Return where objects lie; refuse an address that holds a password, because settings may be shown."""
    scheme, separator, rest = place.partition("://")
    if place == "database":
        return place
    if not separator or not scheme or not rest:
        raise ValueError("this is no place for objects; use database, folder:///path or s3://bucket/prefix")
    if scheme in ("file", "local"):
        raise ValueError(f"write folder://{rest} for a folder")
    if scheme == "folder" and not rest.startswith("/"):
        raise ValueError(f"name the folder by its whole path: folder:///path, not {place}")
    if "?" in rest or (":" in rest.partition("/")[0].rpartition("@")[0]):
        raise ValueError("the address holds a password or options; give them in the service's own variables")
    return place.rstrip("/")


class Settings(BaseSettings):
    """All settings: where data lives, and how carefully it is kept. docs/settings.md describes each of them.

    - `url`: `memory://`, `sqlite:///path` or `postgresql://…`. Without one, everything is stored in `folder`, and its
      database is migrated automatically.
    - `objects`: where files above 4 KB lie: `database`, `folder:///path`, or an address such as `s3://bucket/prefix`.
      Without one, they lie in `folder`.
    - `workspace_fallback`: the folder that `wtb.workspace()` is outside a run; without one, `outside` in `folder`.
    - `sqlite_synchronous`: with `NORMAL`, data survives a killed process; with `FULL`, also a crash of the machine.
    - `outage_timeout_s`: how long to keep trying when Postgres does not answer.
    - `checkpoint_failure`: if a checkpoint cannot be written, the next one makes up for it (`warn`), or the run ends
      (`fatal`).
    - `user`: the name that your runs, checkpoints and events carry; without one, your login name.
    - `secret_keys`, `secret_patterns`: what else to mask in events, logs and errors.
    - `judge_url`, `judge_key`: the address of an OpenAI-compatible service that judges ask, and its key.
    - `limits`: how many calls of a service run at a time in all runs of this store, as `{"openai": 20}`.
    - `retention`: the rules of `wtb prune`.
    - `sweep_grace_s`: unreferenced data is deleted once it has not been used for this long. It must be longer than any
      step takes to store its files.
    - `job_timeout_s`: how long a job of a batch may take in a process or on Ray, unless the batch says otherwise.
    - `server`: what `wtb serve` serves, and to whom.
    """

    model_config = SettingsConfigDict(
        env_prefix="WTB_",
        env_nested_delimiter="__",
        env_ignore_empty=True,  # with `WTB_URL= wtb …`, a shell user leaves the variable out
        toml_file="wtb.toml",
        extra="forbid",
        frozen=True,
        validate_default=True,
    )

    preset: Preset = Preset.LOCAL
    url: Annotated[str, AfterValidator(_full_scheme)] | None = None
    folder: Path = Path(".wtb")
    objects: Annotated[str, AfterValidator(_object_place)] | None = None
    workspace_fallback: Path | None = None
    sqlite_synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    busy_timeout_s: float = Field(default=30.0, gt=0, le=86_400)
    pool_size: int = Field(default=5, ge=1)
    outage_timeout_s: float = Field(default=30.0, ge=0, le=86_400)
    checkpoint_failure: Literal["warn", "fatal"] = "warn"
    user: Annotated[str, Field(max_length=200), AfterValidator(_printable)] | None = None
    secret_keys: tuple[str, ...] = ()
    secret_patterns: tuple[str, ...] = ()
    retention: RetentionSettings = RetentionSettings()
    limits: dict[str, Annotated[int, Field(ge=1)] | Literal["adaptive"]] = {}
    judge_url: str | None = None
    judge_key: SecretStr | None = None
    sweep_grace_s: float = Field(default=3600.0, ge=0, le=31_536_000)
    job_timeout_s: float = Field(default=JOB_TIMEOUT_S, gt=0, le=31_536_000)
    server: ServerSettings = ServerSettings()

    @property
    def objects_folder(self) -> Path:
        """The folder for objects, if they lie in a folder."""
        return self.folder / "objects" if self.objects is None else Path(self.objects.removeprefix("folder://"))

    @property
    def outside_folder(self) -> Path:
        """The folder that `wtb.workspace()` is outside a run."""
        return self.workspace_fallback or self.folder / "outside"

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


def settings_data(settings: Settings) -> dict[str, Any] | None:
    """Return settings as plain JSON for another process of this machine; None if it could not open the same store.

    They hold the password of the database and the key of the judge: send them over a pipe, and write them nowhere.
    """
    if settings.url == "memory://":
        return None
    data = settings.model_dump(mode="json", warnings=False)  # it would warn about a whole number of days
    key = settings.judge_key
    url = settings.url
    if url is not None and url.startswith("sqlite:///"):
        url = f"sqlite:///{Path(url.removeprefix('sqlite:///')).absolute()}"
    return {
        **data,
        "folder": str(settings.folder.absolute()),
        "url": url,
        "judge_key": None if key is None else key.get_secret_value(),
    }


def settings_from(data: Mapping[str, Any]) -> Settings:
    """Return the settings of the process that sent them; neither variables nor wtb.toml change them."""
    return Settings(**data)


def load_settings(**given: Any) -> Settings:
    """Return the settings in force; None leaves a setting to the other sources. Raise InvalidInput for wrong values."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()
        )
        raise InvalidInput(f"settings are wrong (arguments, WTB_* variables or wtb.toml): {faults}") from error
    except SettingsError as error:  # only environment variables hold a list as text
        why = f"{error} ({error.__cause__})"
        raise InvalidInput(f"a WTB_* variable that holds a list or a table is written as JSON: {why}") from error
    except (ValueError, OSError) as error:  # wtb.toml is not TOML, or cannot be read
        raise InvalidInput(f"wtb.toml cannot be read: {error}") from error
