"""Manifest and DeltaEncoder: hashes that do not know history, chunks, sealing, and costs that follow the change."""

import zlib
from typing import Any

import pytest

from tests.unit.manifest_builder import Builder
from wtb.domain.errors import InvalidStateChange, StateNotSerialisable, UnknownFormat
from wtb.domain.state import Append, DeleteKey, SetValue, Splice, StateDelta
from wtb.infrastructure.checkpoints.manifest import (
    CHUNK_BYTES,
    EMPTY,
    INLINE_APPEND_BYTES,
    INLINE_BYTES,
    SEAL_BYTES,
    Entry,
    Manifest,
    Segment,
    ValueEntry,
    cut,
    first_items,
    packed_array,
)
from wtb.infrastructure.codecs.msgpack import MsgpackCodec


def same_bucket(key: str) -> str:
    """Return another key that lies in the same bucket."""
    wanted = zlib.crc32(key.encode()) & 0xFF
    return next(f"k{i}" for i in range(10_000) if zlib.crc32(f"k{i}".encode()) & 0xFF == wanted and f"k{i}" != key)


def test_an_empty_state_has_a_hash_too() -> None:
    assert Builder().root == Builder().apply(a=SetValue(1)).apply(a=DeleteKey()).root


def test_the_hash_does_not_know_how_the_state_came_about() -> None:
    neighbour = same_bucket("a")
    direct = Builder().setting({"a": 1, neighbour: [1, 2, 3], "c": {"x": 1, "y": 2}})
    detour = Builder().setting({"c": None, "gone": "x" * 1000, neighbour: [1, 9]})
    detour.apply(**{neighbour: Splice(1, 1, (2,))}).apply(**{neighbour: Append((3,))}).seal()
    detour.apply(gone=DeleteKey(), c=SetValue({"y": 2, "x": 1})).apply(a=SetValue(2)).apply(a=SetValue(1))
    assert detour.root == direct.root
    assert detour.state == direct.state == {"a": 1, neighbour: [1, 2, 3], "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": [1, 2]}, {"a": (1, 2)}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": []}, {}),
        ({"a": []}, {"a": None}),
        ({"a": [[1], 2]}, {"a": [1, [2]]}),
        ({"a": ["ab", "c"]}, {"a": ["a", "bc"]}),
        ({"a": "x"}, {same_bucket("a"): "x"}),
    ],
    ids=str,
)
def test_different_states_have_different_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Builder().setting(one).root != Builder().setting(other).root


def test_a_change_copies_one_bucket_and_leaves_the_manifest_before_it_alone() -> None:
    before = Builder().setting({f"key {i}": i for i in range(2_000)})
    manifest, root = before.manifest, before.root
    after = before.apply(**{"key 7": SetValue("changed")}).manifest
    changed = [index for index in after.buckets if after.buckets[index] is not manifest.buckets[index]]
    assert len(changed) == 1
    assert manifest.root(before.codec) == root != before.root


def test_hashing_a_small_change_does_not_grow_with_the_state() -> None:
    def cost(keys: int) -> int:
        builder = Builder().setting({f"key {i}": "x" * 100 for i in range(keys)})
        assert builder.root
        builder.codec.hashed_bytes = 0
        assert builder.apply(one=SetValue(1)).root
        return builder.codec.hashed_bytes

    assert cost(25_600) <= cost(256) + 100 * 60  # the root, and the keys that share one bucket


def test_hashing_an_append_does_not_grow_with_the_list() -> None:
    def cost(items: int) -> int:
        builder = Builder().setting({"l": ["x" * 100] * items})
        assert builder.root
        builder.codec.hashed_bytes = 0
        assert builder.apply(l=Append(("y",))).root
        return builder.codec.hashed_bytes

    assert cost(10_000) == cost(10)


def test_a_bucket_that_becomes_empty_is_gone() -> None:
    assert Builder().apply(a=SetValue(1)).apply(a=DeleteKey()).manifest.buckets == {}


def test_the_weight_is_the_same_whatever_the_way() -> None:
    builder = Builder().setting({"a": "x" * 1_000, "b": [1, 2], "c": 5})
    builder.apply(a=SetValue(1), b=Append((3,)), d=SetValue(["x" * 300])).apply(c=DeleteKey(), b=Splice(0, 1))
    again = EMPTY.apply({key: (entry.operation(),) for key, entry in builder.manifest})
    assert builder.manifest.weight == again.weight
    assert builder.apply(a=DeleteKey(), b=DeleteKey(), d=DeleteKey()).manifest.weight == 0


def test_what_deltas_cost_adds_up_until_a_keyframe() -> None:
    manifest = EMPTY.apply({}, 10).apply({}, 5)
    assert manifest.pending == 15
    assert manifest.keyframe(MsgpackCodec())[2].pending == 0


def test_a_small_value_lies_in_the_delta_and_a_large_one_in_a_blob() -> None:
    def entry(text: str) -> Entry | None:
        return Builder().apply(a=SetValue(text)).manifest.find("a")

    small, large = entry("x" * (INLINE_BYTES - 2)), entry("x" * (INLINE_BYTES - 1))
    assert isinstance(small, ValueEntry)
    assert isinstance(large, ValueEntry)
    assert (len(small.data), small.addresses) == (INLINE_BYTES, ())
    assert (large.data, large.size, len(large.addresses)) == (b"", INLINE_BYTES + 1, 1)


def test_equal_values_share_one_blob() -> None:
    builder = Builder().setting({"a": "x" * 1_000, "b": "x" * 1_000, "c": ["y" * 1_000], "d": ["y" * 1_000]})
    assert len(builder.blobs) == 2


def packed(*sizes: int) -> list[bytes]:
    return [MsgpackCodec().encode(b"x" * size, "x")[0] for size in sizes]


def test_no_items_are_cut_into_no_segments() -> None:
    assert cut(MsgpackCodec(), [], 10, {}) == []


def test_few_items_are_one_segment_inline() -> None:
    blobs: dict[bytes, bytes] = {}
    items = packed(10, 20)
    (segment,) = cut(MsgpackCodec(), items, sum(map(len, items)), blobs)
    assert (segment.take, segment.address, blobs) == (2, b"", {})
    assert MsgpackCodec().decode(segment.data) == [b"x" * 10, b"x" * 20]


def test_many_items_are_cut_into_chunks_of_about_the_same_size() -> None:
    codec, blobs = MsgpackCodec(), dict[bytes, bytes]()
    sizes = [1_000 + i for i in range(300)]
    segments = cut(codec, packed(*sizes), INLINE_BYTES, blobs)
    lengths = [len(blobs[segment.address]) for segment in segments]
    assert sum(segment.take for segment in segments) == 300
    assert len(lengths) > 1
    assert all(CHUNK_BYTES <= length < CHUNK_BYTES + 2_000 for length in lengths[:-1])
    assert [len(item) for segment in segments for item in codec.decode(blobs[segment.address])] == sizes
    assert all(codec.digest(data) == address for address, data in blobs.items())


def test_an_item_larger_than_a_chunk_is_a_chunk_alone() -> None:
    blobs: dict[bytes, bytes] = {}
    segments = cut(MsgpackCodec(), packed(10, 10 * CHUNK_BYTES, 10), INLINE_BYTES, blobs)
    assert [segment.take for segment in segments] == [2, 1]


def test_an_array_is_packed_with_a_header_of_fixed_size() -> None:
    for count in (0, 1, 15, 16, 70_000):
        assert packed_array([b"\x01"] * count)[:5] == b"\xdd" + count.to_bytes(4, "big")
        assert MsgpackCodec().decode(packed_array([b"\x01"] * count)) == [1] * count


@pytest.mark.parametrize(
    ("count", "takes"),
    [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (8, [3, 5]), (9, [3, 5, 1]), (10, [3, 5, 2]), (99, [3, 5, 2]), (-1, [])],
)
def test_the_first_items_end_within_the_segment_that_holds_the_last_of_them(count: int, takes: list[int]) -> None:
    segments = [Segment(take, b"data", b"", 4) for take in (3, 5, 2)]
    assert [segment.take for segment in first_items(segments, count)] == takes
    assert [segment.take for segment in segments] == [3, 5, 2]


def test_a_keyframe_joins_what_was_appended_piece_by_piece() -> None:
    builder = Builder()
    for number in range(20):
        builder.apply(l=Append((number,)))
    assert len(builder.list_at("l").tail) == 20
    root = builder.root
    builder.seal()
    assert (len(builder.list_at("l").sealed), builder.list_at("l").tail) == (1, ())
    assert builder.blobs == {}
    assert builder.root == root
    assert builder.state == {"l": list(range(20))}


def test_a_keyframe_seals_large_tails_into_chunks() -> None:
    builder = Builder()
    for number in range(100):
        builder.apply(l=Append((f"{number}:" + "x" * 2_000,)))
    before = builder.state
    builder.seal()
    segments = builder.list_at("l").segments
    assert len(segments) > 1
    assert all(segment.address for segment in segments[:-1])
    assert all(SEAL_BYTES <= len(data) < CHUNK_BYTES + INLINE_APPEND_BYTES + 100 for data in builder.blobs.values())
    assert builder.state == before


def test_a_tail_below_the_size_of_a_chunk_stays_inline_and_is_joined_with_the_next_one() -> None:
    builder = Builder()
    for _ in range(3):
        builder.apply(l=Append(("x" * 4_000,))).seal()
    (segment,) = builder.list_at("l").segments
    assert (segment.take, segment.address) == (3, b"")
    builder.apply(l=Append(("x" * 4_000,))).apply(l=Append(("x" * 4_000,))).seal()
    (segment,) = builder.list_at("l").segments
    assert (segment.take, len(segment.address)) == (5, 32)


def test_a_second_keyframe_without_changes_is_the_same() -> None:
    builder = Builder().setting({"l": ["x" * 2_000] * 50, "v": 1}).apply(l=Append((1,))).seal()
    operations, blobs, again = builder.manifest.keyframe(builder.codec)
    assert blobs == {}
    assert operations == builder.manifest.keyframe(builder.codec)[0]
    assert again.weight == builder.manifest.weight


@pytest.mark.parametrize("size", [1, 3_000])
@pytest.mark.parametrize("start", [0, 1, 5, 9, 10])
def test_a_list_that_was_cut_can_be_appended_to_and_sealed(size: int, start: int) -> None:
    plain: list[Any] = [f"{i}:" + "x" * size for i in range(10)]
    builder = Builder().setting({"l": plain})
    builder.apply(l=Splice(start, 10 - start, ("new",))).apply(l=Append(("end",))).seal()
    assert builder.state == {"l": [*plain[:start], "new", "end"]}
    assert builder.root == Builder().setting({"l": [*plain[:start], "new", "end"]}).root


def test_a_splice_of_a_sealed_list_reads_its_blobs() -> None:
    builder = Builder().setting({"l": ["x" * 1_000] * 200}).seal().apply(l=Splice(100, 99))
    assert len(builder.state["l"]) == 101


def test_several_changes_of_one_key_in_one_delta_follow_each_other() -> None:
    builder = Builder().setting({"l": [1, 2, 3]})
    delta = StateDelta({"l": (Append(("x" * 5_000,)), Splice(0, 2), Append((4,)), Splice(1, 1))})
    encoded = builder.encoder.encode(builder.manifest, delta, None, lambda _: {})
    manifest = builder.manifest.apply(encoded.operations)
    assert builder.encoder.state(manifest, encoded.blobs) == {"l": [3, 4]}
    assert manifest.root(builder.codec) == Builder().setting({"l": [3, 4]}).root


def test_appending_to_what_is_no_list_names_the_key() -> None:
    for change in (Append((1,)), Splice(0, 0)):
        with pytest.raises(InvalidStateChange, match="'a': it does not hold a list"):
            Builder().apply(a=SetValue("text")).apply(a=change)


def test_the_path_of_an_item_that_cannot_be_stored_counts_the_items_before_it() -> None:
    builder = Builder().setting({"l": [1, 2]})
    with pytest.raises(StateNotSerialisable, match=r"^state\.l\[3\]: object"):
        builder.apply(l=Append((3, object())))
    with pytest.raises(StateNotSerialisable, match=r"^state\.l\[1\]\.f: object"):
        builder.apply(l=SetValue([1, {"f": object()}]))


def test_a_key_that_is_no_valid_text_is_refused_by_name() -> None:
    with pytest.raises(StateNotSerialisable, match=r"state\['\\ud800'\]"):
        Builder().apply(**{"\ud800": SetValue(1)})


def test_an_operation_of_a_newer_version_is_named_with_its_key() -> None:
    with pytest.raises(UnknownFormat, match="key 'a' has the unknown operation 'z'"):
        EMPTY.apply({"a": (("z", b""),)})


def test_a_manifest_finds_only_what_is_there() -> None:
    manifest: Manifest = Builder().setting({"a": 1}).manifest
    assert (manifest.find("b"), manifest.find(same_bucket("a"))) == (None, None)
    assert [key for key, _ in manifest] == ["a"]
