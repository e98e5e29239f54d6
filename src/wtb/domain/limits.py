"""Limit and LimitState: how many calls of a service may run at a time, how that adapts, and when a breaker opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wtb.domain.amounts import is_positive
from wtb.domain.errors import CircuitOpen, InvalidInput
from wtb.domain.overload import is_overload
from wtb.domain.values import evolve

ADAPTIVE = "adaptive"

TRIAL_LEASE = timedelta(seconds=60)
"""How long a trial call may take before another one is made: its process may be gone."""


class BreakerState(StrEnum):
    """The state of a circuit breaker."""

    CLOSED = "closed"
    """Calls are made."""
    OPEN = "open"
    """Calls fail at once."""
    TRIAL = "trial"
    """One call is being made to find out whether the service works again; others fail at once."""


class CallEnd(StrEnum):
    """How a call ended, as far as a limit is concerned."""

    SUCCEEDED = "succeeded"
    OVERLOADED = "overloaded"
    OTHER = "other"
    """It failed for a reason of its own, or was cancelled: this says nothing about the service."""


@dataclass(frozen=True)
class Limit:
    """How many calls may run at a time, over all workers: `wtb.Limit(20)`, or `wtb.Limit(adaptive=True)`.

    - `most`: the most calls at a time.
    - `adaptive`: find out how many calls the service bears. The number begins with `start`, grows by one after as many
      successes while all slots are taken, and is halved when a call says that the service is overloaded. It never
      falls below `least`.
    - `overloaded`: a function of an exception that says whether it means overload. By default these do: HTTP status
      429, 502, 503, 504 and 529, TimeoutError and ConnectionError. The function adds to them.
    - `break_after`: after this many overloaded calls in a row, calls fail at once with `CircuitOpen`. After
      `cool_down_s` seconds, one call is tried. If it succeeds, all calls are made again. By default nothing breaks.
    """

    most: int = 100
    _: KW_ONLY
    adaptive: bool = False
    start: int = 4
    least: int = 1
    overloaded: Callable[[BaseException], bool] | None = None
    break_after: int | None = None
    cool_down_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        if not (_is_whole(self.most) and _is_whole(self.least) and _is_whole(self.start)):
            raise InvalidInput(f"a limit's most, least and start are whole numbers from 1, not {self.numbers}")
        if self.least > self.most:
            raise InvalidInput(f"a limit's least must not be above its most, as in {self.numbers}")
        if self.break_after is not None and not _is_whole(self.break_after):
            raise InvalidInput(f"break_after is a whole number from 1, not {self.break_after!r}")
        if not is_positive(self.cool_down_s):
            raise InvalidInput(f"cool_down_s must be a finite number above 0, not {self.cool_down_s!r}")

    @property
    def numbers(self) -> str:
        """Its numbers, for messages."""
        return f"most={self.most!r}, least={self.least!r}, start={self.start!r}"

    @property
    def first_width(self) -> int:
        """How many calls may run at a time in the beginning."""
        return min(self.most, max(self.least, self.start)) if self.adaptive else self.most

    @property
    def learns(self) -> bool:
        """Whether the end of a call may change the state of the limit."""
        return self.adaptive or self.break_after is not None

    def end_of(self, error: BaseException | None) -> CallEnd:
        """Return how a call ended that raised this error, or none."""
        if error is None:
            return CallEnd.SUCCEEDED
        return CallEnd.OVERLOADED if is_overload(error, self.overloaded) else CallEnd.OTHER

    @classmethod
    def of(cls, given: Any, name: str) -> Limit:
        """Return a limit that is given as a number, as "adaptive" or as itself."""
        if isinstance(given, Limit):
            return given
        if given == ADAPTIVE:
            return cls(adaptive=True)
        if _is_whole(given):
            return cls(given)
        raise InvalidInput(
            f"limit {name!r} is {given!r}; give a whole number from 1, 'adaptive', or a wtb.Limit, for example "
            f"limits={{{name!r}: 20}}"
        )

    def to_data(self) -> dict[str, Any]:
        """Return it as plain JSON, without the function."""
        return {
            "most": self.most,
            "adaptive": self.adaptive,
            "start": self.start,
            "least": self.least,
            "break_after": self.break_after,
            "cool_down_s": self.cool_down_s,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Limit:
        """Read it from plain JSON."""
        return cls(**data)


def _is_whole(number: Any) -> bool:
    return type(number) is int and number >= 1


def read_limits(given: Mapping[Any, Any]) -> dict[str, Limit]:
    """Return limits by name; raise InvalidInput for a limit that cannot be used."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"limits={given!r} is not a mapping; write limits={{'openai': 20}}")
    for name in given:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InvalidInput(f"{name!r} cannot be the name of a limit; use a short text such as 'openai'")
    return {name: Limit.of(each, name) for name, each in given.items()}


@dataclass(frozen=True, kw_only=True)
class LimitState:
    """The stored state of a limit, which all workers share.

    `scope` is the id of a batch, or empty for a limit of the settings, which all runs of the store share.
    """

    scope: str
    name: str
    width: int
    """How many calls may run at a time now."""
    successes: int = 0
    """How many calls have succeeded since the width last changed, while all slots were taken."""
    failures: int = 0
    """How many overloaded calls there were in a row."""
    breaker: BreakerState = BreakerState.CLOSED
    until: datetime | None = None
    """While the breaker is not closed: when the next call is tried."""
    narrowed_at: datetime | None = None
    """When the width last shrank."""
    told_width: int
    """The width that the last event told."""

    @classmethod
    def first(cls, scope: str, name: str, limit: Limit) -> LimitState:
        """Return the state of a limit that was never used."""
        return cls(scope=scope, name=name, width=limit.first_width, told_width=limit.first_width)

    def fitted(self, limit: Limit) -> LimitState:
        """Return the state with a width that this limit allows; it may have been stored for another one."""
        width = min(limit.most, max(limit.least, self.width)) if limit.adaptive else limit.most
        return self if width == self.width else evolve(self, width=width, told_width=width, successes=0)

    def begun(self, limit: Limit) -> LimitState:
        """Return the state for a batch that is run again: it keeps its width, and its breaker is closed."""
        closed = evolve(self, breaker=BreakerState.CLOSED, failures=0, until=None)
        return closed.fitted(limit)

    def admitted(self, limit: Limit, now: datetime) -> LimitState:
        """Return the state once a call has begun; raise CircuitOpen if the breaker forbids it."""
        if limit.break_after is None or self.breaker is BreakerState.CLOSED:
            return self
        if self.until is not None and now < self.until:
            raise CircuitOpen(self.name, self.failures, self.until)
        return evolve(self, breaker=BreakerState.TRIAL, until=now + TRIAL_LEASE)

    def ended(
        self, limit: Limit, end: CallEnd, *, began_at: datetime, now: datetime, is_full: bool, is_trial: bool
    ) -> LimitState:
        """Return the state after a call; `is_full` says whether all slots were taken when it ended."""
        state = self.fitted(limit)
        if end is CallEnd.SUCCEEDED:
            state = state._succeeded(limit, is_full=is_full, is_trial=is_trial)
        elif end is CallEnd.OVERLOADED:
            state = state._overloaded(limit, began_at, now, is_trial=is_trial)
        elif is_trial and state.breaker is BreakerState.TRIAL:  # it told nothing: the next call is the trial
            state = evolve(state, breaker=BreakerState.OPEN, until=now)
        return state._with_told_width()

    def _succeeded(self, limit: Limit, *, is_full: bool, is_trial: bool) -> LimitState:
        state = evolve(self, failures=0) if self.breaker is BreakerState.CLOSED else self
        if is_trial:
            state = evolve(state, breaker=BreakerState.CLOSED, failures=0, until=None)
        if not limit.adaptive or not is_full:  # a width that nobody fills says nothing about a larger one
            return state
        if state.successes + 1 < state.width:
            return evolve(state, successes=state.successes + 1)
        return evolve(state, successes=0, width=min(limit.most, state.width + 1))

    def _overloaded(self, limit: Limit, began_at: datetime, now: datetime, *, is_trial: bool) -> LimitState:
        state = evolve(self, failures=self.failures + 1, successes=0)
        # Calls that began before the width shrank tell nothing about the smaller width: one burst halves it once.
        if limit.adaptive and (self.narrowed_at is None or began_at > self.narrowed_at):
            state = evolve(state, width=max(limit.least, self.width // 2), narrowed_at=now)
        opens = self.breaker is BreakerState.CLOSED and state.failures >= (limit.break_after or 0)
        if limit.break_after is not None and (opens or (is_trial and self.breaker is BreakerState.TRIAL)):
            until = now + timedelta(seconds=limit.cool_down_s)
            state = evolve(state, breaker=BreakerState.OPEN, until=until)
        return state

    def _with_told_width(self) -> LimitState:
        """Return the state as told in an event, if the width has doubled or halved since the last one."""
        is_news = self.width >= 2 * self.told_width or 2 * self.width <= self.told_width
        return evolve(self, told_width=self.width) if is_news else self
