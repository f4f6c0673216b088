"""The way in which a job computes its relations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """Where a job's relations are computed.

    Attributes:
        name: ``streaming``: by operators in slots. ``stages``: by the same operators on Spark's stages, which give the
            final rows. ``spark``: by Spark SQL, the whole query.
        reasons: why it is not Spark SQL; empty where it is, or where the job is no batch job.
    """

    name: str
    reasons: tuple[str, ...] = ()
