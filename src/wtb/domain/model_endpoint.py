"""ModelEndpoint: where judges ask a model, and with which key."""

from __future__ import annotations

from dataclasses import dataclass

from wtb.domain.secrets import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """The address of an OpenAI-compatible service, for example `https://api.openai.com/v1`, and its key."""

    url: str | None = None
    key: Secret | None = None


NO_ENDPOINT = ModelEndpoint()
