"""Moves batches and watermarks through the stages of a chain.

Each step is one slice of one stage (``firesteel.runtime.chain.stages``). What it gave goes to outputs and consumers,
and into the stages behind, which are worked off first: nothing more is pulled until all of it has gone. When an
output is full nothing is pulled at all: generators stay suspended where they are. So one record may yield ten million
results while memory stays flat and a cancel gets through.

Time moves between batches. A watermark goes through the tree as batches do: it enters a stage when all records before
it have left, fires timers in slices, and passes on when what these gave has gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from firesteel.runtime.chain.plan import ChainPlan
from firesteel.runtime.chain.stages import LARGEST_COLUMNS, AsyncStage, ChainStage, Emitted, Outlet
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.records.batch import MIN_WATERMARK, Batch, InputBatch, Watermark
from firesteel.runtime.records.dictionaries import plain_columns

__all__ = ["ChainExecutor", "ChainPlan", "Writable"]


FULL: Final = 2
"""So many times its limit may a channel have queued before slices get smaller."""


class Writable(Protocol):
    """A channel or a consumer."""

    @property
    def writable(self) -> bool:
        """Whether it takes more now."""

    @property
    def overdrawn(self) -> bool:
        """Whether it takes no more even if a barrier waits behind what would come."""


class ChainExecutor:
    """Moves batches and watermarks through a chain, one slice for each ``step``.

    Args:
        plan: its outputs have been attached.
        guard: of the thread that calls ``step``.
        token: of the task.

    Attributes:
        records_in, records_out: running totals; out counts each record once for each edge that carries it.
        input_watermark: of the last watermark that went in.
        output_watermark: of the last one that left a stage: what goes to other tasks and to sinks.
    """

    def __init__(self, plan: ChainPlan, guard: InterruptGuard, token: CancelToken) -> None:
        self.plan = plan
        self.guard = guard
        self.records_in = 0
        self.records_out = 0
        self.input_watermark = MIN_WATERMARK
        self.output_watermark = MIN_WATERMARK
        self._token = token
        self._async = plan.async_stages
        self._stack: list[ChainStage] = []
        """Those with something pending; the last one goes on."""
        self._full: list[Writable] = []
        self._room = LARGEST_COLUMNS
        """Results of a slice, at most: fitted to what channels in front of slow readers take."""
        self._rest: Batch | None = None
        self._rest_input = 0

    @property
    def pending(self) -> bool:
        """Whether ``step`` has something to do; the next batch may be fed when not."""
        return self._rest is not None or self.working

    @property
    def working(self) -> bool:
        """The same, but for the rest of the batch that is fed by pieces."""
        return bool(self._stack) or (bool(self._async) and self._ready() is not None)

    @property
    def waits(self) -> bool:
        """Whether all that is on its way waits for results that others make."""
        return bool(self._async) and bool(self._stack) and self._stack[-1].waits and self._ready() is None

    @property
    def empty(self) -> bool:
        """Whether nothing is on its way, and no results are awaited."""
        return self._rest is None and not self._stack and all(stage.operator.empty for stage in self._async)

    @property
    def blocked(self) -> bool:
        """Whether an output or a consumer is full, or all that is pending waits: ``step`` must not be called."""
        if self._full:
            self._full = [target for target in self._full if not target.writable]
            if self._full:
                return True
        return self.waits

    @property
    def overdrawn(self) -> bool:
        """Whether a step has to wait for room even for the sake of a barrier: an output or a consumer is more than
        full.
        """
        return any(not target.writable and target.overdrawn for target in self._full)

    def wait_for(self, targets: Iterable[Writable]) -> None:
        """These have become full otherwise than by ``step``."""
        self._full += [target for target in targets if not target.writable]

    def _ready(self) -> AsyncStage | None:
        """One whose results may leave although nothing goes in."""
        for stage in self._async:
            if stage.ready:
                return stage
        return None

    # -- what goes in, when nothing is pending

    def feed(self, batch: Batch, input_index: int = 0) -> None:
        """Put in a batch."""
        self.records_in += len(batch)
        self._push(batch, input_index)

    def feed_by_pieces(self, batch: Batch, input_index: int = 0) -> None:
        """Put in a batch that a barrier may overtake: of slow records only some at a time."""
        self.records_in += len(batch)
        self._rest, self._rest_input = batch, input_index
        self._feed_piece()

    @property
    def rest(self) -> list[InputBatch]:
        """What was fed by pieces and has not gone in."""
        return [] if self._rest is None else [InputBatch(self._rest, self._rest_input)]

    def _feed_piece(self) -> None:
        rest = self._rest
        assert rest is not None
        size = min([stage.records_at_once for stage in self.plan.stages], default=len(rest))
        if len(rest) <= size:
            self._rest, piece = None, rest
        else:
            self._rest, piece = rest.slice(size, len(rest)), rest.slice(0, size)
        self._push(piece, self._rest_input)

    def _push(self, batch: Batch, input_index: int) -> None:
        if len(batch):
            self._enter(self.plan.root)
            self.plan.root.records_in += len(batch)
            if not (isinstance(batch.values, list) or self.plan.root.takes_dictionaries):
                batch = batch.with_values(plain_columns(batch.values))
            self.plan.root.push(batch, input_index)

    def advance(self, watermark: Watermark) -> None:
        """Put in a watermark, or a status alone."""
        self.input_watermark = max(self.input_watermark, watermark.timestamp)
        self._enter(self.plan.root)
        self.plan.root.advance(watermark)

    def fire(self, now: int) -> None:
        """Fire the processing-time timers that are due at this time (epoch ms)."""
        for stage in self.plan.stages:
            earliest = stage.next_timer
            if earliest is not None and earliest <= now:
                self._enter(stage)
                stage.fire(now)

    def earliest_timer(self) -> int | None:
        """When the next processing-time timer is due (epoch ms)."""
        found = (stage.next_timer for stage in self.plan.stages)
        return min((timestamp for timestamp in found if timestamp is not None), default=None)

    def emit_watermarks(self) -> None:
        """Let the operators that make watermarks look at the clock."""
        for stage in self.plan.watermark_stages:
            self._enter(stage)
            stage.look_at_clock()

    def _enter(self, stage: ChainStage) -> None:
        """Something is about to be put in."""
        if not stage.pending:
            self._stack.append(stage)

    # -- slices

    def step(self) -> None:
        """One slice; what user code raises comes out of it with ``guard.active`` still set."""
        stack = self._stack
        stage = stack[-1] if stack else None
        if self._async and (stage is None or stage.waits):
            stage = self._ready()
        if stage is None:
            if not stack and self._rest is not None:
                self._feed_piece()
            return
        self.guard.active = self._token
        emitted = stage.step()
        self.guard.active = None
        if stack and stack[-1] is stage and not stage.pending:
            stack.pop()
        if emitted:
            self._deliver(emitted)
            if self._room < LARGEST_COLUMNS and not self._full:
                self._fit_slices(2 * self._room)

    def _fit_slices(self, room: int) -> None:
        """No slice gives more results than this."""
        self._room = room
        for stage in self.plan.stages:
            if stage.slices is not None:
                stage.slices.room = room

    def _deliver(self, emitted: Emitted) -> None:
        """Hand on what a slice gave: to the stages behind at last, the first of which goes on first."""
        entered: list[ChainStage] = []
        for outlet, item in emitted:
            for child in outlet.children:
                if not child.pending:
                    entered.append(child)
            if isinstance(item, Watermark):
                self.output_watermark = max(self.output_watermark, item.timestamp)
                if outlet.outputs:
                    item.origin = outlet.watermark_origin()
                for output in outlet.outputs:
                    for channel in output.channels:
                        channel.send(item)
                for child in outlet.children:
                    child.advance(item)
            else:
                self._write(outlet, item)
        self._stack.extend(reversed(entered))

    def _write(self, outlet: Outlet, batch: Batch) -> None:
        count = len(batch)
        outlet.records += count
        outlet.refuse_nulls(batch)
        given = outlet.for_readers(batch)
        guard, token = self.guard, self._token
        for consumer in outlet.consumers:
            guard.active = token
            consumer.take(next(given))
            guard.active = None
            if not consumer.writable and consumer not in self._full:
                self._full.append(consumer)
        for output in outlet.outputs:
            self.records_out += count
            guard.active = token
            routed = output.route(next(given))
            guard.active = None
            for channel, part in routed:
                channel.write(part)
                if not channel.writable:
                    if channel not in self._full:
                        self._full.append(channel)
                    # one record may give any number of results: a slice of them is not to be many times what may wait
                    if channel.queued_bytes > FULL * channel.limit:
                        self._fit_slices(max(1, min(self._room, count * channel.limit // channel.queued_bytes)))
        for child in outlet.children:
            child.records_in += count
            child.push(next(given))

    def drop(self) -> None:
        """Forget what is pending; suspended user generators are closed."""
        self._stack.clear()
        self._full, self._rest = [], None
        for stage in reversed(self.plan.stages):
            stage.drop()
