"""Secrets: what is masked, what is not, and what is refused."""

from __future__ import annotations

import gc
import logging

import pytest

import wtb
from wtb.domain.errors import InvalidInput, StateNotSerialisable
from wtb.domain.secrets import Masker, Secret, unrevealed
from wtb.infrastructure.codecs.msgpack import MsgpackCodec


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-abcdefghijklmnopqrstu was refused", "key *** was refused"),
        ("Authorization: Bearer abcdef.ghijkl-mn", "Authorization: ***"),
        ("postgresql://ann:hunter2@db/wtb is gone", "postgresql://***@db/wtb is gone"),
        ("call(password='hunter2', user='ann')", "call(password=***, user='ann')"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("OPENAI_API_KEY=abc123 was set", "OPENAI_API_KEY=*** was set"),
        ("apikey: abc", "apikey: ***"),
        ("input_tokens=12 of 20 tokens: fine", "input_tokens=12 of 20 tokens: fine"),
        ("the secretary said: no", "the secretary said: no"),
        ("nothing here", "nothing here"),
    ],
)
def test_texts_are_masked_by_pattern_and_key(text: str, masked: str) -> None:
    assert Masker().text(text) == masked


def test_data_is_masked_by_key_at_every_depth() -> None:
    data = {"user": "ann", "db_password": "x", "list": [{"token": 7}], "input_tokens": 3, "api-key": None}
    masked = {"user": "ann", "db_password": "***", "list": [{"token": "***"}], "input_tokens": 3, "api-key": "***"}
    assert Masker().data(data) == masked


def test_a_living_secret_is_masked_wherever_its_text_stands() -> None:
    secret = Secret("correct horse")
    assert Masker(keys=(), patterns=()).text("said correct horse twice") == "said *** twice"
    assert (str(secret), repr(secret), f"{secret}", secret.reveal()) == ("***", "***", "***", "correct horse")
    del secret
    gc.collect()
    assert Masker(keys=(), patterns=()).text("correct horse") == "correct horse"


def test_settings_choose_keys_and_patterns() -> None:
    masker = Masker(keys=["pin"], patterns=[r"\d{4}-\d{4}"])
    assert masker.text("pin=1 card 1234-5678 password=x") == "pin=*** card *** password=x"
    with pytest.raises(InvalidInput, match=r"secret_patterns: '\(' is no regular expression"):
        Masker(patterns=["("])
    with pytest.raises(InvalidInput, match=r"secret_patterns: '\\\\d\*' fits an empty text"):
        Masker(patterns=[r"\d*"])


def test_a_secret_is_never_stored_and_the_refusal_says_what_to_do() -> None:
    with pytest.raises(StateNotSerialisable, match=r"state\.key.*never stored: read it in the node"):
        MsgpackCodec().encode({"key": Secret("x")}, "state")
    assert unrevealed({"a": [Secret("x"), 1], "b": (Secret("y"),)}) == {"a": ["***", 1], "b": ("***",)}
    with pytest.raises(InvalidInput, match="a secret is a text, not a int"):
        Secret(5)  # type: ignore[arg-type]


def test_a_masker_filters_log_records(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("wtb.test.secrets")
    logger.addFilter(Masker())
    with caplog.at_level(logging.INFO):
        logger.info("password=%s for %s", "hunter2", "ann")
    assert caplog.messages == ["password=*** for ann"]


def test_equal_secrets_are_equal_and_differ_from_their_text() -> None:
    assert wtb.Secret("a") == wtb.Secret("a")
    assert wtb.Secret("a") != "a"
    assert len({wtb.Secret("a"), wtb.Secret("a"), wtb.Secret("b")}) == 2
