"""Attempts of a sink's subtasks, without a cluster around them: what a task would call, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common import SimpleStringSchema
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
)
from firesteel.functions.two_phase import CommitOutcome, CommitResult, Committable, TwoPhaseWriter, WriterState
from firesteel.runtime.operators.two_phase import MOST_ATTEMPTS
from firesteel.testing.writing import Context
from tests.servers.kafka.server import KafkaCluster


def texts(cluster: KafkaCluster, topic: str) -> KafkaSinkBuilder:
    """A builder of a sink that writes texts exactly once."""
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(cluster.bootstrap)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(topic)
    )


class Attempt:
    """One subtask in one attempt.

    Args:
        sink: which it runs.
        number: of the attempt.
        subtask: from 0.
        parallelism: number of subtasks.
        states: of all subtasks, in the checkpoint that it goes on from.
        committables: that this subtask is to commit.
        opens: its writer is opened.

    Attributes:
        recommitted: what became of the committables.
    """

    def __init__(
        self,
        sink: KafkaSink,
        number: int = 0,
        subtask: int = 0,
        parallelism: int = 1,
        states: Sequence[bytes] = (),
        committables: Sequence[bytes] = (),
        *,
        opens: bool = True,
    ) -> None:
        self._dead = False
        context = Context(subtask, parallelism, number, checkpointing=True)
        self.writer: TwoPhaseWriter[Any] = sink.create_writer(context)
        self.committer = sink.create_committer(context)
        try:
            self.committer.restore_committables(_all(committables))
            self.recommitted = self._results(self.committer.recommit(_all(committables)))
            if states:
                self.writer.restore_state([WriterState(state) for state in states])
            if opens:
                self.writer.open()
        except BaseException:
            self.die()
            raise

    def write(self, *texts: str) -> None:
        self.writer.write(texts, None)

    def barrier(self, *, end_of_input: bool = False) -> tuple[list[bytes], list[bytes]]:
        """Committables and states that a checkpoint gets."""
        prepared = list(self.writer.prepare_commit(end_of_input=end_of_input))
        return prepared, list(self.writer.snapshot_state())

    def commit(self, committables: Sequence[bytes]) -> list[CommitOutcome]:
        """A checkpoint is complete; what is not done is tried again, as a task does."""
        for _ in range(MOST_ATTEMPTS):
            outcomes = self._results(self.committer.commit(_all(committables)))
            if CommitOutcome.RETRY not in outcomes:
                break
        return outcomes

    def _results(self, results: Sequence[CommitResult]) -> list[CommitOutcome]:
        self.reasons = [result.reason for result in results]
        return [result.outcome for result in results]

    def die(self) -> None:
        """The process is gone: nothing is aborted. Idempotent."""
        if not self._dead:
            self._dead = True
            self.writer.close()
            self.committer.close()

    def end(self) -> None:
        """The task has failed or was cancelled."""
        self.writer.abort()
        self.die()


def _all(committables: Sequence[bytes]) -> list[Committable]:
    return [Committable(data) for data in committables]
