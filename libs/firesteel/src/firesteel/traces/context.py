"""W3C trace contexts. We choose the ids of spans ourselves, so that others can refer to a span before it has ended."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

__all__ = ["TraceContext"]

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True)
class TraceContext:
    """Identity of a span.

    Attributes:
        trace_id, span_id: 32 and 16 hex digits.
        sampled: whether the span is recorded.
    """

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def new(cls) -> TraceContext:
        """Return the first span of a new trace, with random ids."""
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    @classmethod
    def named(cls, name: str) -> TraceContext:
        """Return the first span of the trace with this name: the ids are derived from the name, the same everywhere."""
        digest = hashlib.sha256(name.encode()).hexdigest()
        return cls(digest[:32], digest[32:48])

    @classmethod
    def of_checkpoint(cls, job_id: str, number: int) -> TraceContext:
        """Return the first span of a checkpoint's trace; JobMaster and slots derive it independently of each other."""
        return cls.named(f"checkpoint {number} of job {job_id}")

    @classmethod
    def parse(cls, header: str | None) -> TraceContext | None:
        """Read a ``traceparent`` header; None = it is missing or malformed, in which case W3C says to ignore it."""
        match = _HEADER.fullmatch((header or "").strip())
        if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
            return None
        if not int(match[2], 16) or not int(match[3], 16):
            return None
        return cls(match[2], match[3], bool(int(match[4], 16) & 1))

    @property
    def header(self) -> str:
        """The span as the value of a ``traceparent`` header."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"

    def child(self) -> TraceContext:
        """Return a new span of the same trace, with a random id."""
        return TraceContext(self.trace_id, secrets.token_hex(8), self.sampled)

    def below(self, name: str) -> TraceContext:
        """Return the span with this name below this one; its id is derived from both, the same everywhere."""
        digest = hashlib.sha256(f"{self.trace_id}/{self.span_id}/{name}".encode()).hexdigest()
        return TraceContext(self.trace_id, digest[:16], self.sampled)
