"""Where a span belongs: W3C trace context, chosen by us, so that a span can be referred to before it has ended."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

__all__ = ["TraceContext"]

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True)
class TraceContext:
    """One span.

    Attributes:
        trace_id, span_id: 32 and 16 hex digits.
        sampled: it is recorded.
    """

    trace_id: str
    span_id: str
    sampled: bool = True

    @classmethod
    def new(cls) -> TraceContext:
        """The first span of a new trace."""
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    @classmethod
    def named(cls, name: str) -> TraceContext:
        """The first span of the trace that has this name: all who know it find the trace."""
        digest = hashlib.sha256(name.encode()).hexdigest()
        return cls(digest[:32], digest[32:48])

    @classmethod
    def of_checkpoint(cls, job_id: str, number: int) -> TraceContext:
        """The first span of a checkpoint's trace: JobMaster and slots know it without a word."""
        return cls.named(f"checkpoint {number} of job {job_id}")

    @classmethod
    def parse(cls, header: str | None) -> TraceContext | None:
        """Of a ``traceparent``; None = there is none, or it is malformed, which W3C wants to be ignored."""
        match = _HEADER.fullmatch((header or "").strip())
        if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
            return None
        if not int(match[2], 16) or not int(match[3], 16):
            return None
        return cls(match[2], match[3], bool(int(match[4], 16) & 1))

    @property
    def header(self) -> str:
        """As a ``traceparent``."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"

    def child(self) -> TraceContext:
        """Another span of the trace."""
        return TraceContext(self.trace_id, secrets.token_hex(8), self.sampled)

    def below(self, name: str) -> TraceContext:
        """The span of the trace that has this name below this one: others find it by the same name."""
        digest = hashlib.sha256(f"{self.trace_id}/{self.span_id}/{name}".encode()).hexdigest()
        return TraceContext(self.trace_id, digest[:16], self.sampled)
