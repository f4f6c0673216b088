"""What checkpoints are made of comes back as it was, and what is damaged is told as what it is."""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.checkpoint.chunks import HEADER_BYTES, StoredChunk, read_chunks, write_chunks
from firesteel.checkpoint.handles import (
    FileState,
    InlineState,
    RunningChecksum,
    StateHandle,
    checksum,
    handle_from_plain,
)
from firesteel.checkpoint.metadata import VERSION, CheckpointMetadata
from firesteel.checkpoint.reading import CheckpointFormatError
from firesteel.checkpoint.subtask_state import (
    Committables,
    InFlight,
    KeyedState,
    OperatorListState,
    OperatorSubtaskState,
    TaskState,
)
from firesteel.core.errors import CheckpointCorruptedError, CheckpointVersionError
from tests.unit.checkpoint import made

chunks = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 127), st.integers(0, 2**32 - 1), st.binary(max_size=60)), max_size=8
)


@given(made.tasks)
def test_task_states_come_back(state: TaskState) -> None:
    assert TaskState.from_bytes(state.to_bytes()) == state


@given(made.metadata)
def test_metadata_comes_back(metadata: CheckpointMetadata) -> None:
    assert CheckpointMetadata.from_bytes(metadata.to_bytes(), "chk-1/_metadata") == metadata


def test_each_piece_of_state_is_moved() -> None:
    files = [FileState(f"a/{number}", 1, checksum(b"x")) for number in range(5)]
    state = OperatorSubtaskState(
        {"state": KeyedState((), (0, 1), (files[0],), {"table": files[1]})},
        OperatorListState((), (files[2],)),
        (),
        (Committables(1, 1, (files[3],)),),
        in_flight=(InFlight(0, "HASH", files[4]),),
    )

    def move(handle: StateHandle) -> StateHandle:
        assert isinstance(handle, FileState)
        return replace(handle, path=handle.path.replace("a/", "b/"))

    moved = [handle.path for handle in state.moved(move).handles() if isinstance(handle, FileState)]
    assert moved == [f"b/{number}" for number in range(5)]


@given(made.metadata, st.data())
def test_metadata_that_was_cut_off_or_changed_is_no_metadata(metadata: CheckpointMetadata, data: Any) -> None:
    whole = metadata.to_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CheckpointCorruptedError):
        CheckpointMetadata.from_bytes(whole[:cut], "_metadata")
    changed = bytearray(whole)
    version_digit = whole.index(b" ") + 1  # changed, it says another version, which has an error of its own or is read
    at = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at != version_digit))
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CheckpointCorruptedError):
        CheckpointMetadata.from_bytes(bytes(changed), "_metadata")


def _with(metadata: bytes, **changes: Any) -> bytes:
    """The file with other contents, and a checksum that fits."""
    plain = {**json.loads(metadata.split(b"\n", 1)[1]), **changes}
    body = json.dumps(plain).encode() + b"\n"
    return f"FIRESTEEL-CHECKPOINT {VERSION} {checksum(body)} {len(body)}\n".encode() + body


WHOLE = made.some_metadata().to_bytes()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (WHOLE[:10], "its first line is damaged or cut off"),
        (WHOLE[:-20], "cut off: 20 of"),
        (WHOLE[:-1], "cut off: 1 of"),
        (WHOLE + b"x", "1 bytes follow"),
        (WHOLE.replace(b"Count", b"Names"), "its checksum is wrong"),
        (bytes.fromhex("4960672d00000006") + b"flink", "written by Apache Flink"),
        (b"PK\x03\x04 something else", "it is no metadata of a Firesteel checkpoint (it begins with b'PK"),
        (_with(WHOLE, checkpoint_id=-1), "metadata.checkpoint_id: -1 is negative"),
        (_with(WHOLE, job_id=5), "metadata.job_id: text is expected, not int 5"),
        (_with(WHOLE, operators=[{}]), "metadata.operators[0].parallelism: an integer is expected, not nothing"),
    ],
)
def test_each_kind_of_damage_has_an_error_of_its_own(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointCorruptedError) as caught:
        CheckpointMetadata.from_bytes(data, "/c/chk-7/_metadata")
    assert str(caught.value).startswith("/c/chk-7/_metadata: ")
    assert reason in caught.value.reason


@pytest.mark.parametrize("version", [1, 4])
def test_what_another_release_has_written_is_not_damaged(version: int) -> None:
    data = WHOLE.replace(b"CHECKPOINT 3", b"CHECKPOINT %d" % version, 1)
    reason = (
        f"/c/_metadata: it is of version {version}, and this Firesteel reads versions .* with the version that wrote it"
    )
    with pytest.raises(CheckpointVersionError, match=reason):
        CheckpointMetadata.from_bytes(data, "/c/_metadata")


def test_fields_of_later_versions_are_ignored() -> None:
    assert CheckpointMetadata.from_bytes(_with(WHOLE, later={"a": 1}), "_metadata") == made.some_metadata()


def test_inline_state_that_was_changed_is_found() -> None:
    plain = {**InlineState(b"abc").to_plain(), "inline": "YWJk"}
    with pytest.raises(CheckpointFormatError, match=r"state\.x: the checksum of the inline state"):
        handle_from_plain(plain, "state.x")


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "h: an object is expected, not list"),
        ({"checksum": "x"}, "h.file: text is expected, not nothing"),
        ({"checksum": "x", "inline": "%%"}, "h.inline: no base64 text"),
        (
            {"checksum": "x", "file": "p", "length": True, "offset": 0},
            "h.length: an integer is expected, not bool True",
        ),
        ({"checksum": "x", "file": "p", "length": 1, "offset": -1}, "h.offset: -1 is negative"),
    ],
)
def test_malformed_handles_are_named(plain: Any, message: str) -> None:
    with pytest.raises(CheckpointFormatError) as caught:
        handle_from_plain(plain, "h")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"operators": {"a": {"keyed": []}}, "finished": false}', b"\xff"])
def test_malformed_task_states_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointFormatError):
        TaskState.from_bytes(data)


@given(chunks, st.none() | st.builds(range, st.integers(0, 127), st.integers(0, 128)))
def test_chunks_come_back(written: list[tuple[int, int, int, bytes]], key_groups: range | None) -> None:
    read = list(read_chunks(io.BytesIO(write_chunks(written)), "file", key_groups))
    assert read == [StoredChunk(*chunk) for chunk in written if key_groups is None or chunk[1] in key_groups]


@given(chunks.filter(bool), st.data())
def test_chunks_that_were_cut_off_or_changed_are_found(written: list[tuple[int, int, int, bytes]], data: Any) -> None:
    stream = write_chunks(written)
    ends = {0}
    for chunk in written:
        ends.add(max(ends) + HEADER_BYTES + len(chunk[3]))
    cut = data.draw(st.integers(0, len(stream) - 1).filter(lambda at: at not in ends))
    with pytest.raises(CheckpointCorruptedError, match="it ends at byte"):
        list(read_chunks(io.BytesIO(stream[:cut]), "file"))
    changed = bytearray(stream)
    changed[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CheckpointCorruptedError):
        list(read_chunks(io.BytesIO(bytes(changed)), "file"))


@given(chunks.filter(bool), st.integers(0, 127), st.data())
def test_a_reader_of_some_chunks_never_misses_one(
    written: list[tuple[int, int, int, bytes]], group: int, data: Any
) -> None:
    stream = write_chunks(written)
    key_groups = range(group, group + 30)
    whole = list(read_chunks(io.BytesIO(stream), "file", key_groups))
    changed = bytearray(stream)
    changed[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    ends = {0}
    for chunk in written:
        ends.add(max(ends) + HEADER_BYTES + len(chunk[3]))
    cut = data.draw(
        st.integers(0, len(stream) - 1).filter(lambda at: at not in ends)
    )  # else it is the file that is short
    for damaged in (bytes(changed), stream[:cut]):
        try:  # what is skipped is not looked at
            assert list(read_chunks(io.BytesIO(damaged), "file", key_groups)) == whole
        except CheckpointCorruptedError as error:
            assert str(error).startswith("file: ")  # noqa: PT017


def test_the_layout_of_chunks_is_fixed() -> None:
    head = struct.pack("<HHIII", 1, 2, 3, 4, zlib.crc32(b"data"))
    assert write_chunks([(1, 2, 3, b"data")]) == head + struct.pack("<I", zlib.crc32(head)) + b"data"


def test_a_running_checksum_is_that_of_the_whole() -> None:
    running = RunningChecksum()
    running.update(b"ab")
    running.update(memoryview(b"c"))
    assert running.hexdigest() == checksum(b"abc") == "cf4ab791c62b8d2b2109c90275287816"


@given(made.subtasks)
def test_an_empty_state_holds_nothing(state: OperatorSubtaskState) -> None:
    task = TaskState({"a": state})
    if state.is_empty:
        assert task.size == 0
        assert not list(task.handles())
        assert not state.splits
