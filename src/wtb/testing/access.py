"""The contracts of TokenRepository and SignInRepository."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from wtb.domain.access import Caller, Role, SignIn, SignInKind, Token, digest_of
from wtb.domain.errors import TokenNotFound
from wtb.domain.ports import Storage
from wtb.testing.stories import StoryFixtures

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_TOKEN = Token(name="ci", role=Role.OPERATOR, digest=digest_of("ci"), created_by="alice", created_at=_NOON)
_LINK = SignIn(
    digest=digest_of("link"),
    kind=SignInKind.LINK,
    caller=Caller(name="alice", role=Role.ADMIN),
    created_at=_NOON,
    expires_at=_NOON + timedelta(minutes=5),
)


class TokenRepositoryContract(StoryFixtures):
    """What every repository of tokens does."""

    def test_a_token_is_found_by_its_name_and_by_its_digest(self, storage: Storage) -> None:
        token = replace(_TOKEN, expires_at=_NOON + timedelta(microseconds=1))
        _save(storage, token)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.tokens.get("ci") == token
            assert uow.tokens.find(digest_of("ci")) == token
            assert uow.tokens.find(digest_of("ci ")) is None

    def test_a_token_replaces_the_one_of_the_same_name(self, storage: Storage) -> None:
        _save(storage, _TOKEN)
        later = replace(_TOKEN, role=Role.VIEWER, digest=digest_of("other"), revoked_at=_NOON + timedelta(days=1))
        _save(storage, later)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.tokens.list_tokens() == (later,)
            assert uow.tokens.find(digest_of("ci")) is None

    def test_tokens_are_listed_by_name(self, storage: Storage) -> None:
        for name in ("b", "Z", "ä", "a"):
            _save(storage, replace(_TOKEN, name=name, digest=digest_of(name)))
        with storage.unit_of_work(readonly=True) as uow:
            assert [token.name for token in uow.tokens.list_tokens()] == ["Z", "a", "b", "ä"]

    def test_a_name_that_no_token_has_is_an_error(self, storage: Storage) -> None:
        with storage.unit_of_work(readonly=True) as uow, pytest.raises(TokenNotFound, match="wtb token ls"):
            uow.tokens.get("nobody")


class SignInRepositoryContract(StoryFixtures):
    """What every repository of sign-ins does."""

    def test_a_sign_in_is_found_until_it_is_taken(self, storage: Storage) -> None:
        _add(storage, _LINK)
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.sign_ins.find(_LINK.digest) == _LINK
        assert _take(storage) == _LINK
        assert _take(storage) is None
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.sign_ins.find(_LINK.digest) is None

    def test_what_is_taken_without_a_commit_stays(self, storage: Storage) -> None:
        _add(storage, _LINK)
        with storage.unit_of_work() as uow:
            assert uow.sign_ins.take(_LINK.digest) == _LINK
        assert _take(storage) == _LINK

    def test_of_many_that_take_one_only_one_gets_it(self, storage: Storage) -> None:
        _add(storage, _LINK)
        found: list[SignIn | None] = []
        threads = [threading.Thread(target=lambda: found.append(_take(storage))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(each is None for each in found) == [False, True, True, True]

    def test_only_what_has_expired_is_deleted(self, storage: Storage) -> None:
        later = replace(_LINK, digest=digest_of("later"), kind=SignInKind.SESSION, expires_at=_NOON + timedelta(days=1))
        _add(storage, _LINK)
        _add(storage, later)
        with storage.unit_of_work() as uow:
            uow.sign_ins.delete_expired(_LINK.expires_at)
            uow.commit()
        with storage.unit_of_work(readonly=True) as uow:
            assert uow.sign_ins.find(_LINK.digest) is None
            assert uow.sign_ins.find(later.digest) == later


def _save(storage: Storage, token: Token) -> None:
    with storage.unit_of_work() as uow:
        uow.tokens.save(token)
        uow.commit()


def _add(storage: Storage, sign_in: SignIn) -> None:
    with storage.unit_of_work() as uow:
        uow.sign_ins.add(sign_in)
        uow.commit()


def _take(storage: Storage) -> SignIn | None:
    with storage.unit_of_work() as uow:
        found = uow.sign_ins.take(_LINK.digest)
        uow.commit()
    return found
