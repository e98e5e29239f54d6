"""MsgpackCodec keeps the contract of Codec."""

from dataclasses import dataclass

import pytest

from wtb.domain.ports import Codec
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.codecs.types import TypeRegistry
from wtb.testing.codec import CodecContract


@dataclass
class Registered:
    value: int


class TestMsgpackCodec(CodecContract):
    @pytest.fixture
    def codec(self) -> Codec:
        return MsgpackCodec(TypeRegistry())

    @pytest.fixture
    def unknown(self) -> bytes:
        types = TypeRegistry()
        types.register(Registered)
        data, _ = MsgpackCodec(types).encode([{"x": (Registered(1),)}], "state.x")
        return data
