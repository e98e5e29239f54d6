"""What docs/webhooks.md says holds: its lines verify a real request, and its times are the real ones."""

from __future__ import annotations

import re
import runpy
from datetime import UTC, datetime
from pathlib import Path

from wtb.domain.webhooks import MOST_ATTEMPTS, RETRIES, new_secret, signed_headers

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()


def test_the_lines_of_the_page_verify_a_signature(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    program = tmp_path / "receiver.py"
    program.write_text(code)
    names = runpy.run_path(str(program))
    is_genuine, secret, body = names["is_genuine"], new_secret(b"s" * 32), b'{"type": "webhook.test"}'
    headers = dict(signed_headers(secret, "1_2", datetime.now(UTC), body))
    assert is_genuine(headers, body, secret)
    assert not is_genuine(headers, body + b" ", secret)
    assert not is_genuine({**headers, "webhook-id": "1_3"}, body, secret)
    assert not is_genuine(headers, body, new_secret(b"t" * 32))
    old = dict(signed_headers(secret, "1_2", datetime(2026, 1, 1, tzinfo=UTC), body))
    assert not is_genuine(old, body, secret)


def test_the_times_of_the_page_are_those_of_the_deliveries() -> None:
    assert "after 5 and 30 seconds, 2, 10\nand 30 minutes, and 1, 3, 6 and 12 hours" in PAGE
    seconds = [5, 30, 2 * 60, 10 * 60, 30 * 60, 3600, 3 * 3600, 6 * 3600, 12 * 3600]
    assert [wait.total_seconds() for wait in RETRIES] == seconds
    assert (MOST_ATTEMPTS, "After ten attempts" in PAGE) == (10, True)
