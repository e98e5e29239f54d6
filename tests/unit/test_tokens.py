"""AccessTokens and sign-ins: who is let in, until when, and what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from wtb.application.server.short_memory import FRESH_S, ShortMemory
from wtb.application.server.sign_ins import LINK_LASTS, SESSION_LASTS, SignIns
from wtb.application.server.tokens import AccessTokens
from wtb.domain.access import Caller, Role, digest_of
from wtb.domain.errors import AlreadyExists, Forbidden, InvalidInput, Unauthenticated
from wtb.domain.secrets import Masker
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.events.bus import QueueEventBus
from wtb.infrastructure.memory.unit_of_work import MemoryStorage
from wtb.testing.fakes import FakeClock

ALICE = Caller(name="alice", role=Role.ADMIN)


class Timer:
    """Seconds that pass only when told."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def memory(clock: FakeClock) -> Iterator[MemoryStorage]:
    bus = QueueEventBus()
    yield MemoryStorage(codec=MsgpackCodec(), clock=clock, bus=bus)
    bus.close()


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def tokens(memory: MemoryStorage, clock: FakeClock, timer: Timer) -> AccessTokens:
    return AccessTokens(memory, clock, monotonic=timer)


@pytest.fixture
def sign_ins(memory: MemoryStorage, clock: FakeClock, timer: Timer) -> SignIns:
    return SignIns(memory, clock, monotonic=timer)


def test_a_token_names_its_caller_and_only_its_digest_is_stored(tokens: AccessTokens) -> None:
    token, secret = tokens.create("ci", Role.OPERATOR, by="alice")
    assert tokens.find_caller(secret) == Caller(name="ci", role=Role.OPERATOR)
    assert token.digest == digest_of(secret)
    assert secret not in repr(tokens.list_tokens())
    assert tokens.find_caller(secret + "x") is None
    assert tokens.find_caller("") is None


def test_a_token_is_masked_wherever_it_appears(tokens: AccessTokens) -> None:
    _, secret = tokens.create("ci", Role.VIEWER, by="alice")
    assert Masker().text(f"it said {secret} aloud") == "it said *** aloud"


def test_a_revoked_token_is_refused_at_once_and_elsewhere_within_a_second(
    tokens: AccessTokens, memory: MemoryStorage, clock: FakeClock, timer: Timer
) -> None:
    _, secret = tokens.create("ci", Role.VIEWER, by="alice")
    elsewhere = AccessTokens(memory, clock, monotonic=timer)
    assert elsewhere.find_caller(secret) is not None
    tokens.revoke("ci", by="bob")
    assert tokens.find_caller(secret) is None
    timer.seconds += FRESH_S
    assert elsewhere.find_caller(secret) is None
    assert FRESH_S < 1


def test_a_token_expires_even_while_it_is_remembered(tokens: AccessTokens, clock: FakeClock) -> None:
    _, secret = tokens.create("ci", Role.VIEWER, by="alice", lasts=timedelta(days=30))
    assert tokens.find_caller(secret) is not None
    clock.advance(timedelta(days=30))
    assert tokens.find_caller(secret) is None
    assert [token.status(clock.now()) for token in tokens.list_tokens()] == ["expired"]


def test_a_valid_token_keeps_its_name_and_a_revoked_or_expired_one_gives_it_back(
    tokens: AccessTokens, clock: FakeClock
) -> None:
    _, first = tokens.create("ci", Role.ADMIN, by="alice")
    with pytest.raises(AlreadyExists, match="wtb token revoke ci"):
        tokens.create("ci", Role.VIEWER, by="alice")
    tokens.revoke("ci", by="alice")
    _, second = tokens.create("ci", Role.VIEWER, by="alice", lasts=timedelta(hours=1))
    assert tokens.find_caller(first) is None
    assert tokens.find_caller(second) == Caller(name="ci", role=Role.VIEWER)
    clock.advance(timedelta(hours=1))
    tokens.create("ci", Role.VIEWER, by="alice")


def test_a_token_is_revoked_once(tokens: AccessTokens) -> None:
    tokens.create("ci", Role.VIEWER, by="alice")
    tokens.revoke("ci", by="alice")
    with pytest.raises(InvalidInput, match="was revoked at"):
        tokens.revoke("ci", by="alice")


@pytest.mark.parametrize("name", ["", " ci", "a\nb", "\x1b[31m", "a/b", "x" * 101])
def test_a_token_needs_a_name_that_can_be_read_and_typed(tokens: AccessTokens, name: str) -> None:
    with pytest.raises(InvalidInput):
        tokens.create(name, Role.VIEWER, by="alice")


@pytest.mark.parametrize("lasts", [timedelta(), timedelta(days=-1), timedelta(days=99_999)])
def test_a_token_lasts_a_sensible_time(tokens: AccessTokens, lasts: timedelta) -> None:
    with pytest.raises(InvalidInput, match="100 years"):
        tokens.create("ci", Role.VIEWER, by="alice", lasts=lasts)


def test_each_role_may_do_what_the_one_before_it_may() -> None:
    roles = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    for number, role in enumerate(roles):
        assert [role.includes(other) for other in roles] == [other <= number for other in range(3)]
    with pytest.raises(Forbidden, match="'bob' has the role viewer, but this needs operator"):
        Caller(name="bob", role=Role.VIEWER).require(Role.OPERATOR)


def test_a_link_opens_one_session(sign_ins: SignIns) -> None:
    link = sign_ins.create_link(ALICE)
    session, secret = sign_ins.exchange(link)
    assert sign_ins.find_session(secret) == session
    assert session.caller == ALICE
    with pytest.raises(Unauthenticated, match="wtb serve --link"):
        sign_ins.exchange(link)


def test_a_link_is_no_session_and_a_session_is_no_link(sign_ins: SignIns) -> None:
    link = sign_ins.create_link(ALICE)
    assert sign_ins.find_session(link) is None
    _, secret = sign_ins.exchange(link)
    with pytest.raises(Unauthenticated):
        sign_ins.exchange(secret)
    assert sign_ins.find_session(secret) is not None


def test_a_link_expires_after_five_minutes_and_a_session_after_a_week(sign_ins: SignIns, clock: FakeClock) -> None:
    late, link = sign_ins.create_link(ALICE), sign_ins.create_link(ALICE)
    _, secret = sign_ins.exchange(link)
    clock.advance(LINK_LASTS)
    with pytest.raises(Unauthenticated, match="five minutes"):
        sign_ins.exchange(late)
    assert sign_ins.find_session(secret) is not None
    clock.advance(SESSION_LASTS)
    assert sign_ins.find_session(secret) is None


def test_an_ended_session_is_refused_at_once(sign_ins: SignIns) -> None:
    _, secret = sign_ins.exchange(sign_ins.create_link(ALICE))
    assert sign_ins.find_session(secret) is not None
    sign_ins.end(secret)
    assert sign_ins.find_session(secret) is None


def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_remembered() -> None:
    memory: ShortMemory[str] = ShortMemory(lambda: 0.0)

    def look_up() -> str:
        memory.forget()  # another request revokes the token, after this one has read it
        return "valid"

    memory.find(b"key", look_up)
    assert memory.find(b"key", lambda: None) is None
