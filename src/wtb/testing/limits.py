"""The contract of LimitRepository."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from wtb.domain.limit_slots import LimitSlot
from wtb.domain.limits import BreakerState, LimitState
from wtb.domain.ports import Storage
from wtb.domain.values import evolve
from wtb.testing.stories import StoryFixtures

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_STATE = LimitState(scope="batch", name="openai", width=4, told_width=4)
_SLOT = LimitSlot(
    id="one", scope="batch", name="openai", owner="me", since=_NOON, expires_at=_NOON + timedelta(seconds=60)
)


class LimitRepositoryContract(StoryFixtures):
    """What every repository of limits does."""

    def test_a_state_comes_back_as_it_was_saved_last(self, storage: Storage) -> None:
        assert _do(storage, "lock", "batch", "openai") is None
        _do(storage, "save", _STATE)
        assert _do(storage, "lock", "batch", "openai") == _STATE
        later = evolve(
            _STATE,
            width=2,
            successes=3,
            failures=5,
            breaker=BreakerState.OPEN,
            until=_NOON,
            narrowed_at=_NOON + timedelta(microseconds=1),
            told_width=2,
        )
        _do(storage, "save", later)
        assert _do(storage, "lock", "batch", "openai") == later

    def test_limits_are_listed_by_scope_and_sorted_by_name(self, storage: Storage) -> None:
        for scope, name in (("batch", "search"), ("batch", "Openai"), ("other", "openai"), ("", "openai")):
            _do(storage, "save", evolve(_STATE, scope=scope, name=name))
        assert [state.name for state in _list(storage, "limits", "batch")] == ["Openai", "search"]
        assert [state.scope for state in _list(storage, "limits", "")] == [""]
        assert _list(storage, "limits", "nowhere") == ()

    def test_slots_of_a_limit_are_listed_oldest_first_with_the_marks_of_who_waits(self, storage: Storage) -> None:
        mark = replace(_SLOT, id="mark", owner="you", since=_NOON - timedelta(seconds=1), waiting=3)
        for slot in (_SLOT, mark, replace(_SLOT, id="two", name="search"), replace(_SLOT, id="three", scope="other")):
            _do(storage, "put", slot)
        assert _list(storage, "slots", "batch", "openai") == (mark, _SLOT)

    def test_a_slot_that_is_put_again_replaces_itself(self, storage: Storage) -> None:
        _do(storage, "put", _SLOT)
        again = replace(_SLOT, since=_NOON + timedelta(seconds=5), expires_at=_NOON + timedelta(seconds=7), waiting=2)
        _do(storage, "put", again)
        assert _list(storage, "slots", "batch", "openai") == (again,)

    def test_slots_are_extended_while_they_are_there(self, storage: Storage) -> None:
        later = _NOON + timedelta(hours=1)
        _do(storage, "put", _SLOT)
        _do(storage, "put", replace(_SLOT, id="two"))
        _do(storage, "renew", ["one", "lost"], later)
        found = {slot.id: slot.expires_at for slot in _list(storage, "slots", "batch", "openai")}
        assert found == {"one": later, "two": _SLOT.expires_at}

    def test_dropped_slots_are_gone_and_may_be_dropped_again(self, storage: Storage) -> None:
        _do(storage, "put", _SLOT)
        _do(storage, "drop", ["one", "lost"])
        _do(storage, "drop", ["one"])
        assert _list(storage, "slots", "batch", "openai") == ()

    def test_a_scope_is_deleted_with_its_slots_and_others_stay(self, storage: Storage) -> None:
        for scope in ("batch", "other"):
            _do(storage, "save", evolve(_STATE, scope=scope))
            _do(storage, "put", replace(_SLOT, id=scope, scope=scope))
        _do(storage, "delete", "batch")
        assert _list(storage, "limits", "batch") == _list(storage, "slots", "batch", "openai") == ()
        assert len(_list(storage, "limits", "other")) == len(_list(storage, "slots", "other", "openai")) == 1

    def test_one_transaction_at_a_time_holds_a_limit(self, storage: Storage) -> None:
        """Without the lock, two threads would read the same number and lose counts."""
        _do(storage, "save", evolve(_STATE, width=0))

        def count() -> None:
            for _ in range(10):
                with storage.unit_of_work() as uow:
                    state = uow.limits.lock("batch", "openai")
                    assert state is not None
                    uow.limits.save(evolve(state, width=state.width + 1))
                    uow.commit()

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (state,) = _list(storage, "limits", "batch")
        assert state.width == 40


def _do(storage: Storage, verb: str, *arguments: Any) -> Any:
    with storage.unit_of_work() as uow:
        result = getattr(uow.limits, verb)(*arguments)
        uow.commit()
    return result


def _list(storage: Storage, what: str, *place: str) -> Any:
    with storage.unit_of_work(readonly=True) as uow:
        return getattr(uow.limits, f"list_{what}")(*place)
