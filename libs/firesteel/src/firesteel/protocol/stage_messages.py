"""Payloads about runs of bounded stages; part of ``firesteel.protocol.messages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class RunStages(Message):
    """A JobMaster has stages run; again with the same id: they go on.

    Attributes:
        run_id: no other run has it.
        description: for Spark's user interface.
        cores: so many tasks may be under way at once.
        stages: plain ``firesteel.protocol.stages.Stage``, each behind those that it reads.
        blobs: SHA-256 of those that tasks need.
        blob_address: where they are.
        sender: token of the JobMaster.
    """

    job_id: str
    run_id: str
    description: str
    cores: int
    stages: tuple[Mapping[str, Any], ...]
    blobs: tuple[str, ...]
    blob_address: str
    sender: str = ""


@dataclass(frozen=True)
class StageRunRef(Message):
    """A run.

    Attributes:
        offset: of the first result that is wanted.
        known: ids of stages about whose tasks everything is known.
    """

    job_id: str
    run_id: str
    offset: int = 0
    sender: str = ""
    known: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageRunLook(Message):
    """How a run goes; see ``firesteel.protocol.stages.RunLook``."""

    state: str
    message: str
    progress: Mapping[str, Any]
    pages: str = ""


@dataclass(frozen=True)
class StageRunResults(Message):
    """Some of what the tasks of a run have told, each as base64 text; ``end``: there is nothing behind."""

    results: tuple[str, ...]
    end: bool
