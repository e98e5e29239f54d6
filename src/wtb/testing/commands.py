"""The contract of CommandRepository."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wtb.domain.commands import AcceptedRequest, Command, CommandKind, CommandStatus
from wtb.domain.errors import AlreadyExists, CommandNotFound, Conflict
from wtb.domain.ports import Storage
from wtb.testing.stories import StoryFixtures

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_COMMAND = Command(
    id="one",
    kind=CommandKind.RUN_START,
    subject="run",
    arguments={"workflow": "agent", "input": {"text": "a\x00b\ud800☃", "big": 1 << 70, "none": None}},
    created_by="Ada",
    created_at=_NOON,
)
_REQUEST = AcceptedRequest(caller="Ada", key="k", digest=b"\x00\xff", made_id="one", created_at=_NOON)


class CommandRepositoryContract(StoryFixtures):
    """What every repository of commands does."""

    def test_a_command_comes_back_as_it_was_added_and_as_it_was_saved(self, storage: Storage) -> None:
        _do(storage, "add", _COMMAND)
        assert _do(storage, "get", "one") == _COMMAND
        taken = _COMMAND.taken("worker", _NOON + _SECOND)
        _do(storage, "save", taken, _COMMAND)
        assert _do(storage, "get", "one") == taken
        ended = taken.completed({"run": {"id": "run"}}, _NOON + 2 * _SECOND)
        _do(storage, "save", ended, taken)
        assert _do(storage, "get", "one") == ended
        other = replace(_COMMAND, id="two", subject=None)
        _do(storage, "add", other)
        failed = other.failed({"type": "Conflict", "message": "no"}, _NOON)
        _do(storage, "save", failed, other)
        assert _do(storage, "get", "two") == failed

    def test_an_id_is_used_once_and_an_unknown_one_is_not_found(self, storage: Storage) -> None:
        _do(storage, "add", _COMMAND)
        with pytest.raises(AlreadyExists):
            _do(storage, "add", _COMMAND)
        with pytest.raises(CommandNotFound):
            _do(storage, "get", "lost")

    def test_only_whoever_knows_its_owner_saves_a_command(self, storage: Storage) -> None:
        _do(storage, "add", _COMMAND)
        mine, yours = (_COMMAND.taken(owner, _NOON) for owner in ("me", "you"))
        _do(storage, "save", mine, _COMMAND)
        with pytest.raises(Conflict):
            _do(storage, "save", yours, _COMMAND)
        with pytest.raises(Conflict):
            _do(storage, "save", yours.completed({}, _NOON), yours)
        lost = replace(_COMMAND, id="lost")
        with pytest.raises(Conflict):
            _do(storage, "save", lost.taken("me", _NOON), lost)
        assert _do(storage, "get", "one") == mine

    def test_commands_are_listed_newest_first_in_pages(self, storage: Storage) -> None:
        ids = ["a", "b", "c", "d"]
        for number, id in enumerate(ids):
            _do(storage, "add", replace(_COMMAND, id=id, created_at=_NOON + (number // 2) * _SECOND))
        first = _do(storage, "list_commands", limit=3)
        assert [command.id for command in first] == ["d", "c", "b"]
        rest = _do(storage, "list_commands", before=(first[-1].created_at, first[-1].id), limit=3)
        assert [command.id for command in rest] == ["a"]

    def test_commands_are_found_by_status_kind_and_subject(self, storage: Storage) -> None:
        for id, subject in (("a", "run"), ("b", "other"), ("c", None)):
            _do(storage, "add", replace(_COMMAND, id=id, subject=subject))
        other = _do(storage, "get", "b")
        _do(storage, "save", other.taken("me", _NOON), other)
        running = _do(storage, "list_commands", statuses=[CommandStatus.RUNNING], limit=9)
        assert [command.id for command in running] == ["b"]
        assert _do(storage, "list_commands", kinds=[CommandKind.RUN_FORK], limit=9) == ()
        kinds = [CommandKind.RUN_FORK, CommandKind.RUN_START]
        started = _do(storage, "list_commands", kinds=kinds, subject="run", limit=9)
        assert [command.id for command in started] == ["a"]
        either = _do(storage, "list_commands", statuses=list(CommandStatus), subject="run", limit=9)
        assert [command.id for command in either] == ["a"]

    def test_open_commands_are_listed_oldest_first(self, storage: Storage) -> None:
        for number, id in enumerate(["c", "b", "a"]):
            _do(storage, "add", replace(_COMMAND, id=id, created_at=_NOON + number * _SECOND))
        second, third = _do(storage, "get", "b"), _do(storage, "get", "a")
        _do(storage, "save", second.completed({}, _NOON), second)
        _do(storage, "save", third.taken("me", _NOON), third)
        assert [command.id for command in _do(storage, "list_open", 9)] == ["c", "a"]
        (first,) = _do(storage, "list_open", 1)
        assert first.id == "c"
        rest = _do(storage, "list_open", 9, after=(first.created_at, first.id))
        assert [command.id for command in rest] == ["a"]

    def test_open_commands_of_the_same_time_are_listed_by_id_in_pages(self, storage: Storage) -> None:
        for id in ("b", "a", "c"):
            _do(storage, "add", replace(_COMMAND, id=id))
        first = _do(storage, "list_open", 2)
        rest = _do(storage, "list_open", 2, after=(first[-1].created_at, first[-1].id))
        assert [command.id for command in (*first, *rest)] == ["a", "b", "c"]

    def test_open_commands_are_found_by_their_subject(self, storage: Storage) -> None:
        for id, subject in (("a", "run"), ("b", "run"), ("c", "other")):
            _do(storage, "add", replace(_COMMAND, id=id, subject=subject))
        ended = _do(storage, "get", "a")
        _do(storage, "save", ended.completed({}, _NOON), ended)
        assert [command.id for command in _do(storage, "list_open_about", "run")] == ["b"]
        assert _do(storage, "list_open_about", "nothing") == ()

    def test_of_commands_about_one_new_subject_at_the_same_time_one_is_first(self, storage: Storage) -> None:
        created: list[str] = []

        def accept(name: str) -> None:
            with storage.unit_of_work() as uow:
                if not uow.commands.list_open_about("run"):
                    uow.commands.add(replace(_COMMAND, id=name, subject="run"))
                    created.append(name)
                uow.commit()

        threads = [threading.Thread(target=accept, args=(f"command {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [command.id for command in _do(storage, "list_commands", limit=9)] == created
        assert len(created) == 1

    def test_a_request_is_found_by_its_caller_and_key_and_replaced(self, storage: Storage) -> None:
        assert _do(storage, "find_request", "Ada", "k") is None
        _do(storage, "put_request", _REQUEST)
        assert _do(storage, "find_request", "Ada", "k") == _REQUEST
        assert _do(storage, "find_request", "Bob", "k") is None
        later = replace(_REQUEST, digest=b"other", made_id="two", created_at=_NOON + _SECOND)
        _do(storage, "put_request", later)
        assert _do(storage, "find_request", "Ada", "k") == later

    def test_of_requests_with_the_same_key_at_the_same_time_one_is_first(self, storage: Storage) -> None:
        created: list[str] = []

        def accept(name: str) -> None:
            with storage.unit_of_work() as uow:
                if uow.commands.find_request("Ada", "k") is None:
                    uow.commands.put_request(replace(_REQUEST, made_id=name))
                    uow.commands.add(replace(_COMMAND, id=name))
                    created.append(name)
                uow.commit()

        threads = [threading.Thread(target=accept, args=(f"command {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [command.id for command in _do(storage, "list_commands", limit=9)] == created
        assert len(created) == 1

    def test_old_commands_and_requests_are_deleted_and_open_ones_stay(self, storage: Storage) -> None:
        _do(storage, "add", _COMMAND)
        for number, id in enumerate(["old", "new"]):
            command = replace(_COMMAND, id=id)
            _do(storage, "add", command)
            _do(storage, "save", command.completed({}, _NOON + number * _SECOND), command)
            _do(storage, "put_request", replace(_REQUEST, key=id, created_at=_NOON + number * _SECOND))
        limit = {"ended_before": _NOON + _SECOND, "requests_before": _NOON + _SECOND}
        assert _do(storage, "delete_old", **limit) == 1
        assert [command.id for command in _do(storage, "list_commands", limit=9)] == ["one", "new"]
        assert _do(storage, "find_request", "Ada", "old") is None
        assert _do(storage, "find_request", "Ada", "new") is not None


def _do(storage: Storage, verb: str, *arguments: Any, **named: Any) -> Any:
    with storage.unit_of_work() as uow:
        result = getattr(uow.commands, verb)(*arguments, **named)
        uow.commit()
    return result
