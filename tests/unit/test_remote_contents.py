"""The event loop for remote objects works in a forked process too, which has none of its parent's threads."""

from __future__ import annotations

import asyncio
import os

from wtb.infrastructure.files.remote_contents import _own_loop


async def answer() -> int:
    return 42


def asked() -> int:
    return asyncio.run_coroutine_threadsafe(answer(), _own_loop()).result(10)


def test_a_forked_process_has_a_loop_of_its_own() -> None:
    assert asked() == 42
    pid = os.fork()
    if not pid:  # only os._exit ends this process: it must not go on with the tests
        try:
            os._exit(asked())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
