"""A database that lost its end after a crash: no effect is repeated, and none is forgotten."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.crash import anchor_worker
from tests.crash.anchor_worker import ROUNDS, RUN, flow
from wtb.application.upkeep.integrity import IntegrityReport
from wtb.domain.errors import ExecutionNotFound
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import FaultKind
from wtb.domain.tools import CallStatus, ToolCall

ROOT = Path(__file__).parents[2]
PAGE = 4096
FRAME = 24 + PAGE
ALL = [f"order-{number}" for number in range(1, ROUNDS + 1)]

Damage = Callable[[Path], None]


def cut(part: float, extra: int = 0) -> Damage:
    """End the log after a part of its frames, and a few bytes."""

    def shorten(log: Path) -> None:
        log.write_bytes(log.read_bytes()[: 32 + frames(log, part) * FRAME + extra])

    return shorten


def flipped(part: float, offset: int) -> Damage:
    """Change one byte of a frame, of which the first 24 are its head."""

    def flip(log: Path) -> None:
        data = bytearray(log.read_bytes())
        data[32 + frames(log, part) * FRAME + offset] ^= 0x20
        log.write_bytes(data)

    return flip


def zeroed(part: float, count: int | None = None) -> Damage:
    """Replace some frames, or all to the end, by zeros."""

    def zero(log: Path) -> None:
        data = log.read_bytes()
        start = 32 + frames(log, part) * FRAME
        size = len(data) - start if count is None else count * FRAME
        log.write_bytes(data[:start] + bytes(size) + data[start + size :])

    return zero


def wrong_salt(log: Path) -> None:
    """Damage the head of the log, so that none of it counts."""
    data = bytearray(log.read_bytes())
    data[17] ^= 1
    log.write_bytes(data)


def frames(log: Path, part: float) -> int:
    return int((log.stat().st_size - 32) / FRAME * part)


DAMAGES: dict[str, Damage] = {
    "whole": lambda log: None,
    **{f"cut after {part:.0%}": cut(part) for part in (0.06, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)},
    "cut in the middle of a frame": cut(0.7, extra=1000),
    "one byte flipped early": flipped(0.15, 2000),
    "one byte flipped in the middle": flipped(0.5, 100),
    "one byte flipped late": flipped(0.93, 4000),
    "one bit of a checksum flipped": flipped(0.6, 18),
    "one page number flipped": flipped(0.4, 3),
    "one page zeroed": zeroed(0.45, 1),
    "zeros to the end": zeroed(0.55),
    "a damaged head": wrong_salt,
    "emptied": cut(0, -32),
    "deleted": lambda log: log.unlink(),
}
if os.environ.get("WTB_SOAK"):
    _rng = random.Random("logs")
    for _number in range(50):
        _part, _offset = _rng.random(), _rng.randrange(FRAME)
        DAMAGES[f"random cut {_number}"] = cut(_part, extra=_offset)
        DAMAGES[f"random flip {_number}"] = flipped(_part, _offset)


@dataclass
class Store:
    """A folder that a killed process left, and what it had done to the world."""

    home: Path

    def __post_init__(self) -> None:
        self.folder = self.home / "wtb"
        self.anchor = self.folder / "wtb.db-anchor"
        self.log = self.folder / "wtb.db-wal"
        self.database = self.folder / "wtb.db"
        self.use()

    def use(self) -> None:
        anchor_worker.effects = self.home / "effects"
        anchor_worker.last_words = ""

    def copy(self, home: Path) -> Store:
        shutil.copytree(self.home, home, dirs_exist_ok=True)
        return Store(home)

    def bench(self) -> wtb.Bench:
        return wtb.Bench(folder=self.folder)

    def doctor(self, *, repair: bool = False) -> IntegrityReport:
        with self.bench() as bench:
            integrity = bench.services.integrity
            return integrity.repair() if repair else integrity.check()

    def lost(self) -> list[str]:
        return [fault.problem for fault in self.doctor().faults if fault.kind is FaultKind.ANCHOR]

    def go_on(self) -> list[str]:
        """Go on until the end, or from the start when nothing is left; return what was asked, answered truthfully."""
        asked: list[str] = []
        answer: Any = None
        for _ in range(ROUNDS + 2):
            with self.bench() as bench:
                run = taken_up(bench, answer)
                status, waiting = run.status, run.waiting
            if status is ExecutionStatus.COMPLETED:
                return asked
            assert waiting is not None
            assert waiting.reason == "in doubt"
            assert waiting.question is not None
            text = waiting.question["question"].partition("'text': '")[2].partition("'")[0]
            asked.append(text)
            answer = "done" if text in anchor_worker.lines("plain") else "again"
        raise AssertionError(asked)


def taken_up(bench: wtb.Bench, answer: Any = None) -> wtb.Run:
    try:
        bench.get(RUN)
    except ExecutionNotFound:
        bench.create(flow, {}, run_id=RUN)
    return bench.resume(RUN, flow, answer=answer)


def left_by_a_kill(home: Path, template: Path, *, words: str, fine_grained: bool = False) -> Store:
    """Run in a process of its own until it kills itself after an effect, and return what it left."""
    folder, effects = home / "wtb", home / "effects"
    folder.mkdir(mode=0o700)
    effects.mkdir()
    shutil.copyfile(template, folder / "wtb.db")
    program = (
        f"from tests.crash import anchor_worker; anchor_worker.main({str(folder)!r}, {str(effects)!r}, {words!r}, "
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{program}{'yes' if fine_grained else ''!r})"],
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    return Store(home)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Store:
    """What is left by a process that was killed in its last order, right after the effect that nobody can ask about."""
    return left_by_a_kill(tmp_path_factory.mktemp("killed"), sqlite_template, words=f"plain {ALL[-1]}")


@pytest.fixture
def store(killed: Store, tmp_path: Path) -> Iterator[Store]:
    yield killed.copy(tmp_path)
    anchor_worker.effects = Path()


def check_effects() -> None:
    """Everything happened once; what was taken back happened once more."""
    assert anchor_worker.lines("confirmed") == ALL
    assert anchor_worker.lines("plain") == ALL
    assert [line.split()[1] for line in anchor_worker.lines("keyed")] == ALL
    booked = anchor_worker.lines("reserved")
    for text in ALL:
        assert [line[0] for line in booked if line[1:] == text] == ["+", *"-+" * booked.count(f"-{text}")]


def kept_calls(store: Store) -> tuple[ToolCall, ...]:
    with store.bench() as bench, bench.services.storage.unit_of_work(readonly=True) as uow:
        return uow.tool_calls.list_calls(ExecutionId(RUN))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_calls_behind_the_end_of_a_damaged_log_are_in_doubt_and_not_repeated(store: Store, damage: Damage) -> None:
    damage(store.log)
    kept = kept_calls(store)
    assert bool(store.lost()) == (len(kept) < 4 * ROUNDS)
    known = {
        call.arguments["text"] for call in kept if call.tool == "anchored plain" and call.status is CallStatus.SUCCEEDED
    }
    assert store.go_on() == [text for text in ALL if text not in known]
    check_effects()
    assert store.doctor().faults == ()
    assert store.anchor.read_bytes() == b""


def test_calls_that_are_recorded_with_checkpoints_of_their_own_are_in_doubt_too(
    tmp_path: Path, sqlite_template: Path
) -> None:
    store = left_by_a_kill(tmp_path, sqlite_template, words="plain order-2", fine_grained=True)
    cut(0.4)(store.log)
    assert store.lost()
    assert store.go_on() == ALL[:2]
    check_effects()
    anchor_worker.effects = Path()
