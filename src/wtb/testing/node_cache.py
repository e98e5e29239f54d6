"""The contract of NodeCacheRepository."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from wtb.domain.batch import CacheEntry, CacheStatus
from wtb.domain.ports import Storage
from wtb.testing.stories import Story, StoryFixtures

_KEY = b"k" * 32


class NodeCacheRepositoryContract(StoryFixtures):
    """What every repository of shared node runs does."""

    def test_one_of_two_claims_a_key_and_its_result_comes_back_with_its_types(
        self, storage: Storage, story: Story
    ) -> None:
        mine, theirs = _claim(story, "me"), _claim(story, "you")
        assert _do(storage, "claim", mine)
        assert not _do(storage, "claim", theirs)
        assert _find(storage) == mine
        value = {"returned": {"n": Decimal("1.50"), "tags": ("a", {"b"})}, "file_commit": None}
        done = _claim(story, "me", status=CacheStatus.DONE, value=value)
        assert not _do(storage, "settle", _claim(story, "you", status=CacheStatus.DONE, value={"returned": {}}))
        assert _do(storage, "settle", done)
        assert _find(storage) == done
        assert not _do(storage, "settle", done), "a result is never replaced"

    def test_a_claim_is_taken_over_only_from_whom_it_was_seen_to_belong(self, storage: Storage, story: Story) -> None:
        gone, mine = _claim(story, "gone"), _claim(story, "me", attempt="2")
        assert not _do(storage, "claim", mine, instead_of=gone), "there is nothing to take over yet"
        assert _do(storage, "claim", gone)
        assert not _do(storage, "claim", mine, instead_of=_claim(story, "somebody"))
        assert _do(storage, "claim", mine, instead_of=gone)
        assert not _do(storage, "settle", _claim(story, "gone", status=CacheStatus.DONE, value={})), "it came too late"
        assert _find(storage) == mine

    def test_a_claim_is_given_back_by_its_owner_and_a_result_stays(self, storage: Storage, story: Story) -> None:
        assert _do(storage, "claim", _claim(story, "me"))
        _do(storage, "release", _KEY, "you")
        assert _find(storage) is not None
        _do(storage, "release", _KEY, "me")
        assert _find(storage) is None
        assert _do(storage, "claim", _claim(story, "me"))
        assert _do(storage, "settle", _claim(story, "me", status=CacheStatus.DONE, value={}))
        _do(storage, "release", _KEY, "me")
        assert _find(storage) is not None

    def test_claims_of_one_owner_are_extended(self, storage: Storage, story: Story) -> None:
        later = story.execution.created_at + timedelta(hours=1)
        assert _do(storage, "claim", _claim(story, "me"))
        _do(storage, "renew", "you", later)
        assert _expiry(storage) == story.execution.created_at
        _do(storage, "renew", "me", later)
        assert _expiry(storage) == later


def _claim(story: Story, owner: str, **facts: Any) -> CacheEntry:
    given: dict[str, Any] = {
        "key": _KEY,
        "status": CacheStatus.RUNNING,
        "owner": owner,
        "attempt": "1",
        "expires_at": story.execution.created_at,
    }
    return CacheEntry(**given | facts)


def _do(storage: Storage, verb: str, *arguments: Any, **options: Any) -> Any:
    with storage.unit_of_work() as uow:
        result = getattr(uow.cache, verb)(*arguments, **options)
        uow.commit()
    return result


def _find(storage: Storage) -> CacheEntry | None:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.cache.find(_KEY)


def _expiry(storage: Storage) -> datetime | None:
    found = _find(storage)
    return None if found is None else found.expires_at
