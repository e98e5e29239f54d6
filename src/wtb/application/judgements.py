"""Judgements: stores scores by their question, so that no judge is asked the same thing twice."""

from __future__ import annotations

import time
from collections.abc import Callable

from wtb.application.dependencies.walk import fingerprint
from wtb.application.node_cache import AttemptRef, Busy, NodeCache, SharedResult
from wtb.application.store_time import store_time
from wtb.domain.evaluation import Evaluator
from wtb.domain.ports import Codec, Storage

_POLL_S = 0.02


class Judgements:
    """Makes each score only once, in the first job or process that needs it. Failures are not stored."""

    def __init__(self, storage: Storage, codec: Codec, cache: NodeCache) -> None:
        self._storage = storage
        self._codec = codec
        self._cache = cache
        self._digests: dict[int, tuple[Evaluator, str]] = {}
        """The digests by id of the evaluator. The evaluator is kept, so that no other object gets its id."""

    def made_once(
        self, evaluator: Evaluator, case_id: str, question: str, make: Callable[[], float | bool]
    ) -> float | bool:
        """Return the stored score of an equal question about the same case, or make it and store it."""
        facts = ["judgement", evaluator.name, self._digest(evaluator), case_id, question]
        key = self._codec.digest(*(self._codec.digest(each.encode("utf-8", "surrogatepass")) for each in facts))
        attempt = AttemptRef(id="", began_at=store_time(self._storage))
        while isinstance(found := self._cache.claim(key, attempt, {}, lambda result: True), Busy):
            time.sleep(_POLL_S)
        if isinstance(found, SharedResult):
            score: float | bool = found.returned["score"]
            return score
        try:
            score = make()
        except BaseException:
            self._cache.release(key)
            raise
        self._cache.settle_now(
            key, attempt, SharedResult(returned={"score": score}, file_commit=None, usage={}, ms=0.0)
        )
        return score

    def _digest(self, evaluator: Evaluator) -> str:
        if id(evaluator) not in self._digests:
            self._digests[id(evaluator)] = (evaluator, fingerprint(evaluator.evaluate).digest)
        return self._digests[id(evaluator)][1]
