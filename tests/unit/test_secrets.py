"""Secrets: what is masked, what is not, and what is refused."""

from __future__ import annotations

import gc
import html
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

import wtb
from wtb.domain.errors import InvalidInput, StateNotSerialisable
from wtb.domain.execution import Failure
from wtb.domain.secret_memory import SecretMemory
from wtb.domain.secrets import Masker, Secret, masked_logger, unrevealed
from wtb.infrastructure.codecs.msgpack import MsgpackCodec


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key sk-abcdefghijklmnopqrstu was refused", "key *** was refused"),
        ("Authorization: Bearer abcdef.ghijkl-mn", "Authorization: ***"),
        ("postgresql://ann:hunter2@db/wtb is gone", "postgresql://***@db/wtb is gone"),
        ("call(password='hunter2', user='ann')", "call(password=***, user='ann')"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("Authorization: Basic dXNlcjpwYXNz and more", "Authorization: *** and more"),
        ("[(b'authorization', b'Basic dXNlcjpwYXNz')]", "[(b'authorization', b'Basic ***')]"),
        ("Basic authentication failed", "Basic authentication failed"),
        ("Authorization: Token abc", "Authorization: ***"),
        ("redis://:pw@cache:6379/0 is gone", "redis://***@cache:6379/0 is gone"),
        ("postgresql://u:p@ss@db/wtb", "postgresql://***@db/wtb"),
        ("postgresql://me@localhost/wtb", "postgresql://me@localhost/wtb"),
        ("GET https://h/x?n=1&password=hunter2&m=2 failed", "GET https://h/x?n=1&password=*** failed"),
        ("password=b'hunter2', user=b'ann'", "password=***, user=b'ann'"),
        ("{'password': 'hun\\'ter2', 'n': 1}", "{'password': ***, 'n': 1}"),
        ('{\\"password\\": \\"hunter2\\", \\"n\\": 1}', '{\\"password\\": ***, \\"n\\": 1}'),
        ('cut off: password="hunt', "cut off: password=***"),
        ("clientSecret=abc accessToken: 'x'", "clientSecret=*** accessToken: ***"),
        ('{"password": "***"}', '{"password": "***"}'),
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


def test_a_secret_is_masked_wherever_its_text_stands() -> None:
    secret = Secret("correct horse")
    assert Masker(keys=(), patterns=()).text("said correct horse twice") == "said *** twice"
    assert (str(secret), repr(secret), f"{secret}", secret.reveal()) == ("***", "***", "***", "correct horse")


def test_a_secret_is_masked_after_it_and_an_equal_one_are_gone() -> None:
    one, other = Secret("battery staple"), Secret("battery staple")
    del one
    gc.collect()
    assert Masker(keys=(), patterns=()).text("battery staple") == "***"
    del other
    gc.collect()
    assert Masker(keys=(), patterns=()).text("battery staple") == "***"


AWKWARD = "p/ä+'\"\\\n w&?"


@pytest.mark.parametrize(
    "encoded",
    [
        quote(AWKWARD),
        quote(AWKWARD, safe=""),
        quote_plus(AWKWARD),
        quote(AWKWARD, safe="").replace("%2F", "%2f").replace("%C3%A4", "%c3%a4").lower(),
        json.dumps(AWKWARD),
        json.dumps(AWKWARD, ensure_ascii=False),
        json.dumps(json.dumps({"a": AWKWARD})),
        repr(AWKWARD),
        repr(AWKWARD.encode()),
        html.escape(AWKWARD),
        *(b64encode(f"{user}:{AWKWARD}:tail".encode()).decode() for user in ("a", "ab", "abc")),
        *(urlsafe_b64encode(f"{user}:{AWKWARD}".encode()).decode() for user in ("a", "ab", "abc")),
    ],
)
def test_a_secret_is_masked_in_every_common_encoding(encoded: str) -> None:
    Secret(AWKWARD)
    masked = Masker(keys=(), patterns=()).text(f"before {encoded} after")
    assert "***" in masked
    assert len(masked) < len(f"before {encoded} after") - 10
    assert (masked[:7], masked[-6:]) == ("before ", " after")


def test_a_secret_that_holds_another_one_is_masked_as_a_whole() -> None:
    Secret("short-one"), Secret("short-one-and-longer")
    assert Masker().text("x short-one-and-longer x short-one x") == "x *** x *** x"


def test_a_text_of_three_characters_is_not_looked_for() -> None:
    assert str(Secret("the")) == "***"
    assert Masker().text("the other") == "the other"


def test_so_many_secrets_are_remembered_and_those_in_use_are_kept() -> None:
    memory = SecretMemory(most=3)
    for text in ("first", "second", "third", "first", "fourth"):
        memory.add(text)
    assert "first" in memory.forms
    assert "second" not in memory.forms
    assert {"third", "fourth"} < set(memory.forms)


def test_revealing_a_secret_remembers_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("revealed late")
    memory = SecretMemory()
    monkeypatch.setattr("wtb.domain.secrets.REMEMBERED", memory)
    assert Masker().text("revealed late") == "revealed late"
    secret.reveal()
    assert Masker().text("revealed late") == "***"


def test_settings_choose_keys_and_patterns() -> None:
    masker = Masker(keys=["pin"], patterns=[r"\d{4}-\d{4}"])
    assert masker.text("pin=1 card 1234-5678 password=x") == "pin=*** card *** password=x"
    with pytest.raises(InvalidInput, match=r"secret_patterns: '\(' is not a regular expression"):
        Masker(patterns=["("])
    with pytest.raises(InvalidInput, match=r"secret_patterns: '\\\\d\*' matches the empty text"):
        Masker(patterns=[r"\d*"])


def test_a_secret_is_never_stored_and_the_refusal_says_what_to_do() -> None:
    with pytest.raises(StateNotSerialisable, match=r"state\.key.*never stored; read it in the node"):
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


def test_our_loggers_mask_messages_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("password=hunter2")
    except ValueError as error:
        masked_logger("wtb.test.tracebacks").exception("it failed: %s", error)
    assert "it failed: password=***" in caplog.text
    assert "ValueError: password=***" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_stored_value_that_holds_a_secret_is_warned_of_by_its_path_once(caplog: pytest.LogCaptureFixture) -> None:
    secret, codec = Secret("stored by mistake"), MsgpackCodec()
    value = {"steps": [{"said": "hello"}, {"said": f"use {secret.reveal()}!"}]}
    data, _ = codec.encode(value, "state.talk")
    codec.encode(value, "state.talk")
    assert codec.decode(data) == value  # never altered
    (told,) = caplog.messages
    assert told.startswith("state.talk.steps[1].said holds the text of a wtb.Secret and is stored unmasked")


def test_equal_secrets_are_equal_and_differ_from_their_text() -> None:
    assert wtb.Secret("a") == wtb.Secret("a")
    assert wtb.Secret("a") != "a"
    assert len({wtb.Secret("a"), wtb.Secret("a"), wtb.Secret("b")}) == 2


def test_a_very_long_error_is_cut_and_no_secret_with_it() -> None:
    key = "sk-" + "a" * 40
    long = Failure(
        type="ValueError", message="x" * 3_980 + f" {key} " + "y" * 5_000_000, traceback=f"{'t' * 19_980} {key} " * 9
    )
    kept = Masker().failure(long)
    assert len(kept.message) == 4_000
    assert kept.message.endswith("…")
    assert len(kept.traceback) < 41_000
    assert "characters left out" in kept.traceback
    assert "sk-" not in kept.message + kept.traceback


def test_an_error_whose_message_cannot_be_made_is_named() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert Masker().error(Odd()).endswith("Odd: (its message cannot be made: RuntimeError)")
