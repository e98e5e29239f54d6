"""Inputs, expected values and outputs as text: what a person would write, without secrets, and not too long."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

import wtb
from wtb.domain.job_output import MOST_CHARACTERS, JobOutput, output_of
from wtb.domain.job_record import JobRecord
from wtb.domain.secrets import Masker


class Stranger:
    def __repr__(self) -> str:
        raise AssertionError("nobody asked")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (3, "3"),
        (None, "null"),
        ({"question": "why?"}, "why?"),
        ({"question": "why?", "lang": "en"}, "question: why?\nlang: en"),
        ({"a": {"b": [1, True]}, "c": 0.5}, 'a: {"b": [1, true]}\nc: 0.5'),
        ({"answer": {"text": "é"}}, '{"text": "é"}'),
        ([1, "two"], '[1, "two"]'),
        ({"messages": [{"role": "user", "content": "hi"}]}, "hi"),
        ([HumanMessage("hi"), AIMessage([{"type": "text", "text": "ho"}])], "human: hi\nai: ho"),
        ({"user": "me", "api_key": "hidden"}, "user: me\napi_key: ***"),
        ({"it": {"password": "hidden"}}, '{"password": "***"}'),
        ("use sk-abcdefghijklmnopqrstuvwx", "use ***"),
        ([wtb.Secret("very hidden"), Stranger()], '["***", "<Stranger>"]'),
        ({}, "{}"),
        ("", ""),
    ],
)
def test_a_value_is_written_as_a_person_would(value: Any, text: str) -> None:
    assert output_of(value, Masker()).text == text


def test_a_long_text_is_cut_and_its_size_is_kept() -> None:
    found = output_of("x" * (MOST_CHARACTERS + 5), Masker())
    assert (len(found.text), found.size, found.is_whole) == (MOST_CHARACTERS, MOST_CHARACTERS + 5, False)
    assert output_of("x", Masker()).is_whole


def test_a_secret_at_the_cut_is_masked_as_a_whole() -> None:
    text = "x" * (MOST_CHARACTERS - 9) + " sk-abcdefghijklmnopqrstuvwx"
    assert "sk-" not in output_of(text, Masker()).text


def test_a_job_keeps_its_output_and_jobs_of_earlier_versions_have_none() -> None:
    record = JobRecord(scores={}, output=JobOutput(text="a", size=1, made_by="x"))
    assert JobRecord.from_data(record.to_data()) == record
    assert JobRecord.from_data({"scores": {}}).output is None
