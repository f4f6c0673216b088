from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.frames import HEADER, MAX_MESSAGE, MAX_PAYLOAD, FrameKind, decode, encode

u32 = st.integers(0, 2**32 - 1)
frames = st.one_of(
    st.tuples(
        st.sampled_from([FrameKind.END_OF_INPUT, FrameKind.CREDIT, FrameKind.CANCEL, FrameKind.OVERDRAFT]),
        st.builds(ChannelId, st.integers(0, 2**16 - 1), u32, u32), u32, st.integers(0, MAX_MESSAGE), st.just(b""),
    ),
    st.tuples(
        st.sampled_from([FrameKind.DATA, FrameKind.GOODBYE]),
        st.builds(ChannelId, st.integers(0, 2**16 - 1), u32, u32), u32, st.integers(0, MAX_MESSAGE),
        st.binary(min_size=1, max_size=50),
    ),
)  # fmt: skip


@given(st.lists(frames, max_size=8), st.integers(1, 40))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[tuple[FrameKind, ChannelId, int, int, bytes]], step: int
) -> None:
    stream = b"".join(encode(*frame) for frame in sent)
    received = []
    buffer = b""
    for start in range(0, len(stream), step):
        buffer += stream[start : start + step]
        done = 0
        for frame, stop in decode(memoryview(buffer), "peer"):
            received.append((*frame[:4], bytes(frame.payload)))
            done = stop
        buffer = buffer[done:]
    assert received == sent
    assert buffer == b""


@given(st.binary(max_size=300))
def test_garbage_gives_frames_or_a_protocol_error_and_nothing_else(garbage: bytes) -> None:
    try:
        for _, stop in decode(memoryview(garbage), "peer"):
            assert stop <= len(garbage)
    except ProtocolError as error:
        seen = error.peer  # in a variable: whether it raises is up to the garbage
        assert seen == "peer"


def header(length: int, kind: int, value: int = 0) -> memoryview:
    return memoryview(HEADER.pack(length, kind, 0, 0, 0, 0, value))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header(0, 99), "unknown kind 99"),
        (header(MAX_PAYLOAD + 1, FrameKind.DATA), "DATA frame of 1048577 bytes"),
        (header(0, FrameKind.DATA), "without data"),
        (header(3, FrameKind.CREDIT), "3 bytes of payload"),
        (header(1, FrameKind.DATA, MAX_MESSAGE + 1), "impossible value"),
    ],
)
def test_what_no_frame_can_be_is_refused_by_its_header_alone(data: memoryview, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        list(decode(data, "peer"))
