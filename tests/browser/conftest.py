"""A real browser: Debian's Chromium, which `scripts/services` installs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

# A page that a busy machine draws late is no failure; by itself playwright gives up after five seconds.
expect.set_options(timeout=60_000)


# For the module, not for the session: while Playwright is open, its event loop counts as running in this thread, and
# asyncio.run fails in every later test of the process.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the module; a test opens its own window."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "these tests need Chromium: run scripts/services, or apt-get install chromium"
    with sync_playwright() as playwright:
        # In a container tests often run as root, for whom Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
