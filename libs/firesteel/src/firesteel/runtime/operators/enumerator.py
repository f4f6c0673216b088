"""Runs the enumerator that a user wrote for a source; who calls it when is decided by ``runtime.enumerator_input``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

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
"""One element: version of the serializer, bytes. Without a serializer: None, and JSON."""


class EnumeratorOperator(Operator):
    """See the module.

    Attributes:
        gives_state: the user's code is asked for its state right now.
    """

    gives_state = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._enumerator: SplitEnumerator | None = None

    @property
    def blocking(self) -> bool:
        """It has a thread of its own, so that what it does holds up nobody else."""
        return True

    @property
    def source(self) -> Source[Any]:
        """Whose enumerator it is."""
        source = self.spec.function
        assert isinstance(source, Source)
        return source

    def begin(self, context: SplitEnumeratorContext) -> None:
        """Make the enumerator, perhaps of a checkpoint, and start it; behind ``open``."""
        restored = list(self.operator_state.get_list_state(_STATE).get())
        if restored:
            method, made = "restore_enumerator", self.source.restore_enumerator(context, self._read(*restored[0]))
        else:
            method, made = "create_enumerator", self.source.create_enumerator(context)
        if not isinstance(made, SplitEnumerator):
            kind = type(made).__name__
            raise ProgramError(f"operator {self.name!r}: {method}() gave {kind}, which is no SplitEnumerator")
        refuse_coroutines(f"operator {self.name!r}", made)
        self._enumerator = made
        self._enumerator.start()

    def call(self, what: Callable[[SplitEnumerator], None]) -> None:
        """Have the enumerator do something."""
        assert self._enumerator is not None
        what(self._enumerator)

    # -- checkpoints

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Ask it for its state; if it has come to its end, there is none."""
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

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete."""
        super().checkpoint_complete(checkpoint_id)
        if self._enumerator is not None:
            self._enumerator.notify_checkpoint_complete(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
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
