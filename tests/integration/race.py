"""Race: several processes that are ready before any of them begins."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUN = "print('ready', flush=True); sys.stdin.readline()\n"
"""What a script says between its imports and its work."""

Racer = subprocess.Popen[str]


@contextmanager
def racing(script: str, starts: Sequence[Sequence[str]]) -> Iterator[list[Racer]]:
    """Start the script once for each list of arguments, let all begin at once, and see that none is left behind."""
    racers = [_start(script, arguments) for arguments in starts]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n", racer.communicate()[1]
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        yield racers
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def race(script: str, starts: Sequence[Sequence[str]]) -> list[str]:
    """Let the scripts run to their end and return what each printed; any failure of theirs is one of ours."""
    with racing(script, starts) as racers:
        return [finished(racer) for racer in racers]


def finished(racer: Racer) -> str:
    """Wait for a racer and return what it printed."""
    printed, errors = racer.communicate(timeout=120)
    assert racer.returncode == 0, errors
    return printed


def _start(script: str, arguments: Sequence[str]) -> Racer:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
