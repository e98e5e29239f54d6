"""The contracts of WebhookRepository and DeliveryRepository."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from wtb.domain.errors import DeliveryNotFound, WebhookNotFound
from wtb.domain.event_catalogue import EventType
from wtb.domain.ports import Storage, UnitOfWork
from wtb.domain.webhooks import Delivery, DeliveryStatus, Webhook, WebhookId
from wtb.testing.stories import StoryFixtures

Result = TypeVar("Result")

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_ONE, _TWO = WebhookId("1"), WebhookId("2")
_WEBHOOK = Webhook(id=_ONE, url="https://example.org/hook", secret="whsec_eA==", created_at=_NOON)
_FULL = replace(
    _WEBHOOK, id=_TWO, types=(EventType.BATCH_COMPLETED, EventType.EXECUTION_FAILED), cursor="7", created_by="alice"
)
_DELIVERY = Delivery(webhook_id=_ONE, position=5, type="execution.failed", next_at=_NOON, created_at=_NOON)


class WebhookRepositoryContract(StoryFixtures):
    """What every repository of webhooks does."""

    def test_a_webhook_comes_back_as_it_was_added(self, storage: Storage) -> None:
        _add(storage, _FULL, _WEBHOOK)
        assert _read(storage, lambda uow: uow.webhooks.get(_TWO)) == _FULL
        assert _read(storage, lambda uow: uow.webhooks.list_webhooks()) == (_WEBHOOK, _FULL)

    def test_an_unknown_webhook_is_named(self, storage: Storage) -> None:
        with pytest.raises(WebhookNotFound, match="no webhook '1'"):
            _read(storage, lambda uow: uow.webhooks.get(_ONE))
        with pytest.raises(WebhookNotFound):
            _write(storage, lambda uow: uow.webhooks.delete(_ONE))

    def test_a_cursor_moves_only_from_where_the_caller_saw_it(self, storage: Storage) -> None:
        """Two servers that look at once must not note the same events, nor skip any."""
        _add(storage, _WEBHOOK)
        assert _write(storage, lambda uow: uow.webhooks.move(_ONE, "3", since=None))
        assert not _write(storage, lambda uow: uow.webhooks.move(_ONE, "4", since=None))
        assert _write(storage, lambda uow: uow.webhooks.move(_ONE, "9", since="3"))
        assert not _write(storage, lambda uow: uow.webhooks.move(_TWO, "9", since=None))
        assert _read(storage, lambda uow: uow.webhooks.get(_ONE)).cursor == "9"

    def test_a_deleted_webhook_takes_its_deliveries_with_it(self, storage: Storage) -> None:
        _add(storage, _WEBHOOK, _FULL)
        _write(storage, lambda uow: uow.deliveries.add(_DELIVERY, replace(_DELIVERY, webhook_id=_TWO)))
        _write(storage, lambda uow: uow.webhooks.delete(_ONE))
        assert _read(storage, lambda uow: uow.deliveries.count_pending(_ONE)) == 0
        assert _read(storage, lambda uow: uow.deliveries.count_pending(_TWO)) == 1


class DeliveryRepositoryContract(StoryFixtures):
    """What every repository of deliveries does."""

    def test_a_delivery_comes_back_as_it_was_saved_last(self, storage: Storage) -> None:
        _write(storage, lambda uow: uow.deliveries.add(_DELIVERY))
        assert _read(storage, lambda uow: uow.deliveries.get(_ONE, 5)) == _DELIVERY
        dead = replace(_DELIVERY, status=DeliveryStatus.DEAD, attempts=10, next_at=None, error="500", ended_at=_NOON)
        assert _write(storage, lambda uow: uow.deliveries.save(dead))
        assert _read(storage, lambda uow: uow.deliveries.get(_ONE, 5)) == dead

    def test_a_delivery_that_is_added_again_stays_as_it_is(self, storage: Storage) -> None:
        _write(storage, lambda uow: uow.deliveries.add(replace(_DELIVERY, attempts=3)))
        _write(storage, lambda uow: uow.deliveries.add(_DELIVERY))
        assert _read(storage, lambda uow: uow.deliveries.get(_ONE, 5)).attempts == 3

    def test_a_delivery_that_is_gone_is_not_saved(self, storage: Storage) -> None:
        assert not _write(storage, lambda uow: uow.deliveries.save(_DELIVERY))
        with pytest.raises(DeliveryNotFound, match="no delivery of event '5'"):
            _read(storage, lambda uow: uow.deliveries.get(_ONE, 5))

    def test_due_deliveries_come_by_position(self, storage: Storage) -> None:
        later = replace(_DELIVERY, position=1, next_at=_NOON + timedelta(microseconds=1))
        ended = replace(_DELIVERY, position=2, status=DeliveryStatus.DELIVERED, next_at=None, ended_at=_NOON)
        others = replace(_DELIVERY, webhook_id=_TWO)
        due = [replace(_DELIVERY, position=position) for position in (12, 9, 10)]
        _write(storage, lambda uow: uow.deliveries.add(later, ended, others, *due))
        assert _due(storage, _NOON, 10) == [9, 10, 12]
        assert _due(storage, _NOON, 2) == [9, 10]
        assert _due(storage, _NOON + timedelta(seconds=1), 1) == [1]
        assert _read(storage, lambda uow: uow.deliveries.count_pending(_ONE)) == 4

    def test_deliveries_are_listed_newest_first_in_pages(self, storage: Storage) -> None:
        dead = replace(_DELIVERY, position=7, status=DeliveryStatus.DEAD, next_at=None, ended_at=_NOON)
        _write(storage, lambda uow: uow.deliveries.add(dead, *(replace(_DELIVERY, position=at) for at in (5, 6, 8))))
        _write(storage, lambda uow: uow.deliveries.add(replace(_DELIVERY, webhook_id=_TWO)))

        def listed(**filters: int | DeliveryStatus) -> list[int]:
            with storage.unit_of_work(readonly=True) as uow:
                given = {"limit": 10, **filters}
                return [each.position for each in uow.deliveries.list_deliveries(_ONE, **given)]  # type: ignore[arg-type]  # mixed filters

        assert listed() == [8, 7, 6, 5]
        assert listed(limit=2) == [8, 7]
        assert listed(before=7, limit=1) == [6]
        assert listed(status=DeliveryStatus.DEAD) == [7]

    def test_old_deliveries_are_dropped_by_status(self, storage: Storage) -> None:
        hour = timedelta(hours=1)
        old = replace(_DELIVERY, status=DeliveryStatus.DELIVERED, next_at=None, ended_at=_NOON - hour)
        dead = replace(old, status=DeliveryStatus.DEAD, position=3)
        new = replace(old, ended_at=_NOON, position=2)
        made = (replace(old, position=1), new, dead, replace(_DELIVERY, position=4))
        _write(storage, lambda uow: uow.deliveries.add(*made))
        assert _write(storage, lambda uow: uow.deliveries.drop(DeliveryStatus.DELIVERED, ended_before=_NOON)) == 1
        left = _read(storage, lambda uow: uow.deliveries.list_deliveries(_ONE, limit=10))
        assert [each.position for each in left] == [4, 3, 2]


def _add(storage: Storage, *webhooks: Webhook) -> None:
    with storage.unit_of_work() as uow:
        for webhook in webhooks:
            uow.webhooks.add(webhook)
        uow.commit()


def _due(storage: Storage, now: datetime, limit: int) -> list[int]:
    found = _read(storage, lambda uow: uow.deliveries.list_due(_ONE, now, limit=limit))
    return [each.position for each in found]


def _write(storage: Storage, work: Callable[[UnitOfWork], Result]) -> Result:
    with storage.unit_of_work() as uow:
        result = work(uow)
        uow.commit()
    return result


def _read(storage: Storage, work: Callable[[UnitOfWork], Result]) -> Result:
    with storage.unit_of_work(readonly=True) as uow:
        return work(uow)
