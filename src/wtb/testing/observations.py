"""The contract of ObservationRepository."""

from __future__ import annotations

from wtb.domain.observation import ABSENT, ANYBODY, Observation, ObservedSource, SourceKind
from wtb.domain.ports import Storage
from wtb.testing.stories import StoryFixtures

_PROMPT = Observation("app.py:answer", ObservedSource(SourceKind.FILE, "prompts/ä.txt"), "d1")
_MODEL = Observation(ANYBODY, ObservedSource(SourceKind.VARIABLE, "MODEL"), ABSENT)


class ObservationRepositoryContract(StoryFixtures):
    """What every repository of observations does."""

    def test_observations_come_back_by_number_and_in_order(self, storage: Storage) -> None:
        _add(storage, "one", {10: _MODEL, 2: _PROMPT})
        assert list(_list(storage, "one").items()) == [(2, _PROMPT), (10, _MODEL)]

    def test_traces_are_kept_apart(self, storage: Storage) -> None:
        _add(storage, "one", {0: _PROMPT})
        _add(storage, "other", {0: _MODEL})
        assert (_list(storage, "one"), _list(storage, "other")) == ({0: _PROMPT}, {0: _MODEL})
        assert _list(storage, "a third") == {}

    def test_what_is_there_is_left_as_it_is(self, storage: Storage) -> None:
        _add(storage, "one", {0: _PROMPT})
        _add(storage, "one", {0: _MODEL, 1: _MODEL})
        assert _list(storage, "one") == {0: _PROMPT, 1: _MODEL}

    def test_what_is_not_committed_is_not_kept(self, storage: Storage) -> None:
        with storage.unit_of_work() as uow:
            uow.observations.add("one", {0: _PROMPT})
        assert _list(storage, "one") == {}


def _add(storage: Storage, trace_id: str, observations: dict[int, Observation]) -> None:
    with storage.unit_of_work() as uow:
        uow.observations.add(trace_id, observations)
        uow.commit()


def _list(storage: Storage, trace_id: str) -> dict[int, Observation]:
    with storage.unit_of_work(readonly=True) as uow:
        return uow.observations.list_observations(trace_id)
