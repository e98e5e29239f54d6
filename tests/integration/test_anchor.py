"""The anchor beside a SQLite database: what it knows of calls that the database has lost, and what it does not tell."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.application.time_travel.rollback_executor import RollbackFailed
from wtb.domain.anchor import begun_again, first_id
from wtb.domain.errors import StorageUnavailable, UnknownFormat
from wtb.domain.execution import ExecutionStatus
from wtb.domain.ids import ExecutionId, NodeRunId
from wtb.domain.integrity import Fault, FaultKind
from wtb.domain.values import evolve
from wtb.infrastructure.sql.anchor_file import AnchorFile, Content

RUN = "order"


@dataclass
class Shop:
    """A store, a workflow of two nodes that each pay for something, and what was paid."""

    folder: Path
    paid: list[str] = field(default_factory=list)
    bought: str = "tea"
    fails: int = 0
    before: Callable[[], object] = lambda: None
    """What happens before the first payment."""

    def __post_init__(self) -> None:
        self.database = self.folder / "wtb.db"
        self.anchor = self.folder / "wtb.db-anchor"

    def flow(self) -> wtb.Workflow:
        flow = wtb.Workflow("shop")

        def pay(what: str) -> str:
            self.paid.append(what)
            if self.fails > 0:
                self.fails -= 1
                raise RuntimeError("the line is dead")
            return f"receipt for {what}"

        pay.__qualname__ = "pay"

        @flow.node(start=True)
        def first(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
            self.before()
            return {"first": ctx.tool(pay, self.bought)}

        @flow.node()
        def second(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
            return {"second": ctx.tool(pay, "milk")}

        flow.edge("first", "second")
        flow.edge("second", wtb.END)
        return flow

    def bench(self) -> wtb.Bench:
        return wtb.Bench(folder=self.folder)

    def begin(self, **options: Any) -> None:
        with self.bench() as bench:
            bench.create(self.flow(), {}, run_id=RUN, **options)

    def resume(self, **how: Any) -> tuple[ExecutionStatus, str | None]:
        """Go on; return the status, and why it waits."""
        with self.bench() as bench:
            run = bench.resume(RUN, self.flow(), **how)
            return run.status, None if run.waiting is None else run.waiting.reason

    def keep(self) -> Path:
        """Copy the database as it is."""
        shutil.copyfile(self.database, copy := self.folder / "copy")
        return copy

    def lose_all_since(self, copy: Path) -> None:
        """Make the database what it was, as a log that was cut would."""
        shutil.copyfile(copy, self.database)

    def faults(self, *, repair: bool = False) -> list[Fault]:
        with self.bench() as bench:
            integrity = bench.services.integrity
            report = integrity.repair() if repair else integrity.check()
        return [fault for fault in report.faults if fault.kind is FaultKind.ANCHOR]


@pytest.fixture
def shop(tmp_path: Path, sqlite_template: Path) -> Shop:
    shutil.copyfile(sqlite_template, tmp_path / "wtb.db")
    tmp_path.chmod(0o700)
    return Shop(tmp_path)


@pytest.fixture
def lost(shop: Shop) -> Shop:
    """A run that completed, and a database that only knows of its start."""
    shop.begin()
    copy = shop.keep()
    assert shop.resume() == (ExecutionStatus.COMPLETED, None)
    shop.lose_all_since(copy)
    return shop


class TestLostCalls:
    def test_each_is_asked_about_and_made_only_if_somebody_says_so(self, lost: Shop) -> None:
        assert lost.resume() == (ExecutionStatus.PAUSED, "in doubt")
        assert lost.resume(answer={"done": "found it"}) == (ExecutionStatus.PAUSED, "in doubt")
        assert lost.resume(answer="again") == (ExecutionStatus.COMPLETED, None)
        assert lost.paid == ["tea", "milk", "milk"]
        with lost.bench() as bench:
            assert bench.get(RUN).state == {"first": "found it", "second": "receipt for milk"}

    def test_the_one_that_asks_says_when_the_lost_call_began(self, lost: Shop) -> None:
        noted = lost.anchor.read_text()
        lost.resume()
        with lost.bench() as bench:
            waiting = bench.get(RUN).waiting
        assert waiting is not None
        assert waiting.question is not None
        began = waiting.question["question"].partition("began at ")[2][:8]
        assert f"T{began}" in noted

    def test_doctor_names_them_with_the_run_and_what_to_do(self, lost: Shop) -> None:
        [fault] = lost.faults()
        assert "run 'order' called pay in node 'first'" in fault.problem
        assert "wtb resume order" in fault.problem
        assert fault.runs == (RUN,)
        assert fault.remedy is None

    def test_whoever_opens_the_database_is_warned_of_them(self, lost: Shop, caplog: pytest.LogCaptureFixture) -> None:
        with lost.bench():
            [warning] = caplog.messages
        assert "wtb.db has lost its last steps, and with them external calls of run order; `wtb doctor`" in warning

    def test_one_that_is_lost_again_while_it_is_in_doubt_is_asked_about_again(self, lost: Shop) -> None:
        copy = lost.keep()
        assert lost.resume() == (ExecutionStatus.PAUSED, "in doubt")
        assert lost.resume(answer="done") == (ExecutionStatus.PAUSED, "in doubt")
        lost.lose_all_since(copy)
        assert lost.resume() == (ExecutionStatus.PAUSED, "in doubt")
        assert lost.resume(answer="done") == (ExecutionStatus.PAUSED, "in doubt")
        assert lost.resume(answer="done") == (ExecutionStatus.COMPLETED, None)
        assert lost.paid == ["tea", "milk"]

    def test_a_later_try_of_a_call_that_failed_before_is_in_doubt_too(self, shop: Shop) -> None:
        shop.begin()
        shop.fails = 1
        assert shop.resume() == (ExecutionStatus.FAILED, None)
        copy = shop.keep()
        assert shop.resume() == (ExecutionStatus.COMPLETED, None)
        shop.lose_all_since(copy)
        assert shop.resume() == (ExecutionStatus.PAUSED, "in doubt")
        assert shop.paid == ["tea", "tea", "milk"]

    def test_in_a_run_that_is_gone_altogether_they_are_told_and_in_doubt_when_it_is_begun_again(
        self, shop: Shop
    ) -> None:
        with shop.bench():
            pass
        copy = shop.keep()
        shop.begin()
        shop.resume()
        shop.lose_all_since(copy)
        [fault] = shop.faults()
        assert "find out whether this happened" in fault.problem
        shop.begin()
        assert shop.resume() == (ExecutionStatus.PAUSED, "in doubt")

    def test_a_repair_forgets_those_of_a_run_that_is_gone_and_no_others(self, shop: Shop) -> None:
        with shop.bench() as bench:
            bench.create(shop.flow(), {}, run_id="other")
        copy = shop.keep()
        with shop.bench() as bench:
            bench.run(shop.flow(), {}, run_id=RUN)
            bench.resume("other", shop.flow())
        shop.lose_all_since(copy)
        assert [(fault.what, fault.repaired) for fault in shop.faults(repair=True)] == [(RUN, True), ("other", False)]
        assert [fault.what for fault in shop.faults()] == ["other"]

    def test_one_that_the_node_does_not_ask_for_again_stops_the_run_until_somebody_says_to_go_on(
        self, lost: Shop
    ) -> None:
        lost.bought = "coffee"
        status, reason = lost.resume()
        assert status is ExecutionStatus.PAUSED
        assert "the database lost its end, where node 'first' had called" in str(reason)
        assert "rerun_node=True" in str(reason)
        assert lost.resume(rerun_node=True) == (ExecutionStatus.PAUSED, "in doubt")  # milk
        assert lost.resume(answer="done") == (ExecutionStatus.COMPLETED, None)
        assert lost.faults() == []


@dataclass
class Hotel(Shop):
    """A shop whose one node books a room, which can be cancelled."""

    done: list[str] = field(default_factory=list)

    def flow(self) -> wtb.Workflow:
        @wtb.tool(reverse=lambda call: self.done.append("cancelled"))
        def book(room: int) -> int:
            self.done.append("booked")
            return room

        flow = wtb.Workflow("hotel")
        flow.add_node("only", lambda state, ctx: {"room": ctx.tool(book, 7)}, start=True)
        flow.edge("only", wtb.END)
        return flow

    def rolled_back(self) -> None:
        with self.bench() as bench:
            bench.get(RUN).rollback(0)


@pytest.fixture
def hotel(shop: Shop) -> Hotel:
    hotel = Hotel(shop.folder)
    hotel.begin()
    assert hotel.resume() == (ExecutionStatus.COMPLETED, None)
    return hotel


class TestLostRollbacks:
    def test_what_was_taken_back_is_not_taken_back_a_second_time(self, hotel: Hotel) -> None:
        copy = hotel.keep()
        hotel.rolled_back()
        hotel.lose_all_since(copy)
        [fault] = hotel.faults()
        assert "run 'order' took back book in node 'only'" in fault.problem
        with pytest.raises(RollbackFailed, match="was being taken back when its process died"):
            hotel.rolled_back()
        with hotel.bench() as bench:
            assert bench.get(RUN).continue_rollback(in_doubt="done").state == {}
        assert hotel.done == ["booked", "cancelled"]
        assert hotel.faults() == []

    def test_what_a_redo_did_again_is_not_done_once_more(self, hotel: Hotel) -> None:
        hotel.rolled_back()
        copy = hotel.keep()
        with hotel.bench() as bench:
            bench.get(RUN).redo()
        hotel.lose_all_since(copy)
        [fault] = hotel.faults()
        assert "run 'order' called again book in node 'only'" in fault.problem
        with hotel.bench() as bench:
            run = bench.get(RUN)
            with pytest.raises(RollbackFailed, match="was being made again when its process died"):
                run.redo()
            assert run.continue_rollback(in_doubt="done").state == {"room": 7}
        assert hotel.done == ["booked", "cancelled", "booked"]
        assert hotel.faults() == []

    def test_a_run_that_goes_on_without_one_is_warned_about(
        self, hotel: Hotel, caplog: pytest.LogCaptureFixture
    ) -> None:
        copy = hotel.keep()
        hotel.rolled_back()
        hotel.lose_all_since(copy)
        with (
            hotel.bench() as bench,
            bench.services.storage.unit_of_work() as uow,
        ):  # as if it had stopped before the end
            execution = uow.executions.get(ExecutionId(RUN))
            uow.executions.save(evolve(execution, status=ExecutionStatus.PAUSED, version=execution.version + 1))
            uow.commit()
        hotel.resume()
        assert "run order had undone book there, and continues as if that were still in effect" in caplog.text

    def test_none_is_lost_by_rolling_back_and_redoing_several_times(self, hotel: Hotel) -> None:
        with hotel.bench() as bench:
            for _ in range(2):
                bench.get(RUN).rollback(0)
                assert bench.services.anchor.inspect() == ()
                bench.get(RUN).redo()
                assert bench.services.anchor.inspect() == ()
            assert hotel.anchor.read_text().count("\n") == 4

    def test_none_is_lost_by_a_reversal_that_failed(self, hotel: Hotel) -> None:
        with hotel.bench() as bench:
            hotel.anchor.unlink()
            hotel.anchor.mkdir()
            with pytest.raises(RollbackFailed, match="-anchor cannot be used"):
                bench.get(RUN).rollback(0)
            assert hotel.done == ["booked"]
            hotel.anchor.rmdir()
            bench.get(RUN).continue_rollback()
            assert bench.services.anchor.inspect() == ()
        assert hotel.done == ["booked", "cancelled"]


class TestNothingIsLost:
    def test_by_a_rollback_and_what_follows_it(self, shop: Shop) -> None:
        shop.begin()
        shop.resume()
        with shop.bench() as bench:
            bench.get(RUN).rollback(0, allow_irreversible=True)
        assert shop.faults() == []
        assert shop.resume() == (ExecutionStatus.COMPLETED, None)
        assert shop.faults() == []
        assert shop.paid == ["tea", "milk", "tea", "milk"]

    def test_by_the_deletion_of_a_run_even_if_another_takes_its_id(self, shop: Shop) -> None:
        with shop.bench() as bench:  # one process, so that the anchor is not emptied in between
            for _ in range(2):
                run = bench.run(shop.flow(), {}, run_id=RUN)
                assert run.status is ExecutionStatus.COMPLETED
                assert bench.services.anchor.inspect() == ()
                run.delete()
            assert bench.services.anchor.inspect() == ()
            assert shop.anchor.stat().st_size > 0

    def test_by_a_fork_which_is_a_run_of_its_own(self, shop: Shop) -> None:
        shop.begin()
        shop.resume()
        with shop.bench() as bench:
            fork = bench.get(RUN).fork(0, run_id="fork")
            bench.resume(fork.id, shop.flow())
            assert bench.services.anchor.inspect() == ()
        assert shop.paid == ["tea", "milk", "tea", "milk"]

    def test_by_beginning_a_node_afresh(self, shop: Shop) -> None:
        shop.begin()
        shop.fails = 1
        shop.resume()
        with shop.bench() as bench:
            bench.resume(RUN, shop.flow(), rerun_node=True)
            assert bench.services.anchor.inspect() == ()
        assert shop.faults() == []

    def test_when_memory_holds_everything(self) -> None:
        with wtb.Bench("memory://") as bench:
            assert bench.services.anchor.inspect() == ()


class TestTheFile:
    def test_is_emptied_when_the_database_holds_everything_itself(self, shop: Shop) -> None:
        shop.begin()
        shop.resume()
        assert shop.anchor.read_text().count("\n") == 2
        shop.faults()
        assert shop.anchor.read_bytes() == b""

    def test_is_not_emptied_while_the_database_has_a_log_that_may_be_cut(self, shop: Shop) -> None:
        shop.begin()
        with shop.bench() as bench:
            bench.resume(RUN, shop.flow())
            with shop.bench():
                assert shop.anchor.read_text().count("\n") == 2

    def test_is_emptied_now_and_then_by_a_process_that_lives_long(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("wtb.infrastructure.sql.anchor._MANY", 3)
        with shop.bench() as bench:
            for _ in range(4):
                assert bench.run(shop.flow(), {}).status is ExecutionStatus.COMPLETED
            assert shop.anchor.read_text().count("\n") == 2  # of 8 calls
            assert bench.services.anchor.inspect() == ()

    def test_is_not_emptied_by_such_a_process_while_others_read(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("wtb.infrastructure.sql.anchor._MANY", 3)
        with shop.bench() as bench:
            reader = sqlite3.connect(shop.database, check_same_thread=False)
            reader.execute("BEGIN")
            shop.before = lambda: reader.execute("SELECT count(*) FROM wtb_events").fetchone()
            bench.run(shop.flow(), {})
            shop.before = lambda: None
            bench.run(shop.flow(), {})
            reader.close()
            assert shop.anchor.read_text().count("\n") == 4

    def test_is_not_emptied_while_a_call_is_lost_or_a_line_is_damaged(self, lost: Shop) -> None:
        noted = lost.anchor.read_bytes()
        with lost.bench():
            assert lost.anchor.read_bytes() == noted

    def test_may_be_read_by_those_who_may_read_the_database(self, shop: Shop) -> None:
        shop.database.chmod(0o640)
        shop.faults()
        assert shop.anchor.stat().st_mode & 0o777 == 0o640

    def test_that_is_missing_is_made_anew_with_a_warning_if_there_were_calls(
        self, shop: Shop, caplog: pytest.LogCaptureFixture
    ) -> None:
        shop.begin()
        assert caplog.messages == []
        shop.resume()
        shop.anchor.unlink()
        with shop.bench(), shop.bench():
            [warning] = caplog.messages
        assert "wtb.db-anchor was missing" in warning
        assert "WTB cannot tell" in warning
        assert shop.faults() == []

    def test_with_a_damaged_line_is_told_and_the_other_lines_count(self, lost: Shop) -> None:
        noted = bytearray(lost.anchor.read_bytes())
        noted[30] ^= 1
        lost.anchor.write_bytes(noted)
        damaged, missing = lost.faults()
        assert damaged.problem.startswith("1 line is damaged in ")
        assert "node 'second'" in missing.problem
        assert [fault.repaired for fault in lost.faults(repair=True)] == [True, False]

    def test_whose_last_line_was_never_finished_counts_without_it(self, lost: Shop) -> None:
        with lost.anchor.open("ab") as file:
            file.write(b'0badc0de {"run": "ord')
        [fault] = lost.faults()
        assert "in node 'second'" in fault.problem

    def test_of_a_newer_version_keeps_nobody_from_looking_but_from_going_on(
        self, lost: Shop, caplog: pytest.LogCaptureFixture
    ) -> None:
        newer = AnchorFile(lost.anchor, is_flushed=False, timeout_s=1)
        newer.append('{"run": "order", "act": "something new"}')
        newer.close()
        with lost.bench() as bench:
            assert "cannot be compared with the database" in caplog.text
            with pytest.raises(UnknownFormat, match="install a newer wtb"):
                bench.resume(RUN, lost.flow())
        [fault] = lost.faults()
        assert "install a newer wtb" in fault.problem
        assert lost.paid == ["tea", "milk"]

    def test_tells_of_a_call_whose_place_in_the_database_is_damaged(self, shop: Shop) -> None:
        shop.begin()
        with shop.bench() as bench:
            bench.resume(RUN, shop.flow())
            with sqlite3.connect(shop.database) as raw:
                raw.execute("UPDATE wtb_tool_calls SET started_step = 'one'")
            raw.close()
            [fault] = bench.services.anchor.inspect()
        assert "called pay in node 'first'" in fault.problem

    def test_that_cannot_be_written_keeps_the_tool_from_being_called(self, shop: Shop) -> None:
        """Nothing is in doubt then: once there is room, the call is made."""
        shop.begin()
        shop.before = shop.anchor.mkdir  # as useless as a full disk, also for root
        with shop.bench() as bench:
            shop.anchor.unlink()
            run = bench.resume(RUN, shop.flow())
            assert run.status is ExecutionStatus.FAILED
            assert run.error is not None
            assert "wtb.db-anchor cannot be used: Is a directory" in run.error.message
            assert shop.paid == []
            shop.before = shop.anchor.rmdir
            assert bench.resume(RUN, shop.flow()).status is ExecutionStatus.COMPLETED
        assert shop.paid == ["tea", "milk"]

    def test_is_the_same_for_all_names_of_a_database(self, shop: Shop, tmp_path: Path) -> None:
        (tmp_path / "names").mkdir()
        link = tmp_path / "names" / "other.db"
        link.symlink_to(shop.database)
        with wtb.Bench(f"sqlite:///{link}", folder=tmp_path / "names") as bench:
            bench.run(shop.flow(), {})
        assert shop.anchor.read_text().count("\n") == 2


@pytest.fixture
def file(tmp_path: Path) -> Iterator[AnchorFile]:
    file = AnchorFile(tmp_path / "anchor", is_flushed=True, timeout_s=10)
    yield file
    file.close()


class TestAppending:
    def test_gives_the_lines_back_in_their_order(self, file: AnchorFile) -> None:
        assert file.read() == Content((), 0)
        lines = ("one", "", 'a "quote" and \\n', "Grüße \u2028")
        for line in lines:
            file.append(line)
        assert file.read() == Content(lines, 0)

    def test_after_half_a_line_spoils_nothing(self, file: AnchorFile) -> None:
        file.append("one")
        with file.path.open("ab") as raw:
            raw.write(b"12345678 tw")
        assert file.read() == Content(("one",), 0)
        file.append("three")
        assert file.read() == Content(("one", "three"), 1)

    def test_of_what_does_not_fit_leaves_the_file_as_it_was(
        self, file: AnchorFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.append("one")
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
        with pytest.raises(StorageUnavailable, match="No space left"):
            file.append("two")
        monkeypatch.undo()
        file.append("three")
        assert file.read() == Content(("one", "three"), 0)

    def test_by_many_at_once_while_others_cut_loses_no_line(self, file: AnchorFile) -> None:
        """Whoever cuts takes away what he has seen; all others' lines are there in the end, or were seen."""
        seen: list[str] = []
        pids = [child for name in "ab" if (child := os.fork()) or not _append_many(file, name)]

        def cut() -> None:
            for _ in range(50):
                with file.kept_from_growing() as content:
                    seen.extend(content.lines)
                    file.replace(())

        cutter = threading.Thread(target=cut)
        cutter.start()
        for number in range(100):
            file.append(f"c{number}")
        cutter.join()
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
        found = [*seen, *file.read().lines]
        assert sorted(found) == sorted(f"{name}{number}" for name in "abc" for number in range(100))
        assert [line for line in found if line[0] == "a"] == [f"a{number}" for number in range(100)]


def _append_many(file: AnchorFile, name: str) -> bool:
    """Append in a child, which ends here."""
    try:
        for number in range(100):
            file.append(f"{name}{number}")
        os._exit(0)
    finally:
        os._exit(1)


def test_the_id_of_a_node_run_that_is_begun_again_sorts_as_new_and_ends_with_the_first() -> None:
    once = begun_again(NodeRunId("02"), NodeRunId("01"))
    assert NodeRunId("01") < once < NodeRunId("03")
    twice = begun_again(NodeRunId("03"), once)
    assert first_id(twice) == first_id(once) == first_id(NodeRunId("01")) == "01"
