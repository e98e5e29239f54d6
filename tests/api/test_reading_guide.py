"""The examples of the page about reading over HTTP work as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.api.client import TestClient
from tests.api.stored_batches import run_batch
from tests.api.stored_runs import opened, writing
from wtb.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "api-reading.md"


def sent(client: TestClient, command: str) -> Any:
    """Send what a curl command sends."""
    words = shlex.split(command.replace("$WTB", "/api/v1"))[1:]
    method, body, query, headers, address = "GET", None, {}, {}, ""
    while words:
        word = words.pop(0)
        match word:
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                method, body = "POST", words.pop(0)
            case "-X":
                method = words.pop(0)
            case "--data-urlencode":
                name, _, value = words.pop(0).partition("=")
                query[name] = value
            case "-o":
                words.pop(0)
            case "--get" | "-O":
                pass
            case _:
                address = word
    assert headers.pop("Authorization") == "Bearer $TOKEN"
    return client.request(method, address, content=body, headers=headers, params=query or None)


def test_every_curl_command_of_the_page_is_answered(admin: TestClient, server_settings: Settings) -> None:
    with opened(server_settings) as bench:
        bench.run(writing(), {}, run_id="first", created_by="ann")
        run_batch(bench)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert len(commands) > 30
    for command in commands:
        answer = sent(admin, command)
        assert answer.status_code in (200, 201, 204), (command, answer.text)
