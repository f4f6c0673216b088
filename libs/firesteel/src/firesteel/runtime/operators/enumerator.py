"""Runs the enumerator that a user wrote for a source; ``runtime.sources.enumerator_input`` decides when to call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError, StateRestoreError
from firesteel.core.short_repr import short_repr
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.source import Source, SplitEnumerator, SplitEnumeratorContext
from firesteel.functions.state import ListStateDescriptor
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operator_base.split_codec import is_plain

_STATE: Final = ListStateDescriptor("enumerator", Types.PICKLED_BYTE_ARRAY())
"""One element: the version of the source's serializer and bytes, or without a serializer None and JSON."""


class EnumeratorOperator(Operator):
    """Owns the ``SplitEnumerator`` of a source: creates or restores it, takes its state, and closes it.

    Attributes:
        gives_state: whether the user's ``snapshot_state`` is running right now.
    """

    gives_state = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._enumerator: SplitEnumerator | None = None

    @property
    @override
    def blocking(self) -> bool:
        # An enumerator may list directories or call services: a thread of its own keeps it from holding up others.
        return True

    @property
    def source(self) -> Source[Any]:
        """The source whose splits are enumerated."""
        source = self.spec.function
        assert isinstance(source, Source)
        return source

    def begin(self, context: SplitEnumeratorContext) -> None:
        """Create the enumerator, or restore it from a checkpoint, and start it; called after ``open``."""
        restored = list(self.operator_state.get_list_state(_STATE).get())
        if restored:
            method, enumerator = "restore_enumerator", self.source.restore_enumerator(context, self._read(*restored[0]))
        else:
            method, enumerator = "create_enumerator", self.source.create_enumerator(context)
        if not isinstance(enumerator, SplitEnumerator):
            kind = type(enumerator).__name__
            raise ProgramError(f"operator {self.name!r}: {method}() gave {kind}, which is no SplitEnumerator")
        refuse_coroutines(f"operator {self.name!r}", enumerator)
        self._enumerator = enumerator
        self._enumerator.start()

    def call(self, action: Callable[[SplitEnumerator], None]) -> None:
        """Call ``action`` with the enumerator, from a frame that names this operator in the traceback."""
        assert self._enumerator is not None
        action(self._enumerator)

    # -- checkpoints

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Ask the enumerator for its state; one that is closed has none."""
        super().snapshot_state(context)
        if self._enumerator is None:
            return
        self.gives_state = True
        try:
            state = self._enumerator.snapshot_state(context.checkpoint_id)
        finally:
            self.gives_state = False
        self.operator_state.get_list_state(_STATE).update([self._written(state)])

    def _written(self, state: Any) -> tuple[int | None, bytes]:
        serializer = self.source.get_enumerator_checkpoint_serializer()
        if serializer is not None:
            return serializer.get_version(), bytes(serializer.serialize(state))
        if not is_plain(state):
            raise ProgramError(
                f"operator {self.name!r}: snapshot_state() gave {short_repr(state, 80)}, which is not plain data: give "
                "what JSON can carry, or the source a get_enumerator_checkpoint_serializer()"
            )
        return None, json.dumps(state).encode()

    def _read(self, version: int | None, data: bytes) -> Any:
        serializer = self.source.get_enumerator_checkpoint_serializer()
        if (serializer is None) != (version is None):
            now, before = ("no", "with one") if serializer is None else ("a", "without")
            raise StateRestoreError(
                f"operator {self.name!r}: the source has {now} serializer of its enumerator's state, which was written "
                f"{before}: give the source another uid to begin anew"
            )
        return json.loads(data) if serializer is None or version is None else serializer.deserialize(version, data)

    @override
    def checkpoint_complete(self, checkpoint_id: int) -> None:
        super().checkpoint_complete(checkpoint_id)
        if self._enumerator is not None:
            self._enumerator.notify_checkpoint_complete(checkpoint_id)

    @override
    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        super().checkpoint_aborted(checkpoint_id)
        if self._enumerator is not None:
            self._enumerator.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        enumerator, self._enumerator = self._enumerator, None
        try:
            if enumerator is not None:
                enumerator.close()
        finally:
            super().close()
