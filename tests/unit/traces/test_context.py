"""W3C trace context."""

from __future__ import annotations

import pytest

from firesteel.traces.context import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_header_is_read_and_written() -> None:
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-01")
    assert context == TraceContext(TRACE, SPAN)
    assert context.header == f"00-{TRACE}-{SPAN}-01"
    unsampled = TraceContext.parse(f"00-{TRACE}-{SPAN}-00")
    assert unsampled is not None
    assert not unsampled.sampled
    assert unsampled.child().header.endswith("-00")


def test_a_later_version_may_say_more() -> None:
    assert TraceContext.parse(f"cc-{TRACE}-{SPAN}-01-what") == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "00", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", "x" * 10_000,
    ],
)  # fmt: skip
def test_what_is_malformed_is_ignored(header: str | None) -> None:
    assert TraceContext.parse(header) is None


def test_spans_below_are_found_by_their_names() -> None:
    root = TraceContext.new()
    assert root.below("v_0_1") == root.below("v_0_1") != root.below("v_0_2")
    assert root.below("v_0_1").trace_id == root.trace_id == root.child().trace_id
    assert root.below("v_0_1") != root.child().below("v_0_1")
    assert TraceContext.new() != root
    for context in (root, root.below("x"), root.child()):
        assert TraceContext.parse(context.header) == context
