"""Moves batches and watermarks through the stages of a chain.

Each step works on one slice of one stage (``firesteel.runtime.chain.stages``). Its results go to outputs and consumers,
and into the stages behind. Those work first: a stage pulls no more until all results of its last slice have left the
chain, so the tree is walked depth first. While an output is full no stage works at all, and generators stay suspended.
So one record may yield ten million results while memory stays flat and a cancellation gets through.

Time moves between batches. A watermark goes through the tree as batches do: it enters a stage when all records before
it have left, fires timers in slices, and passes on when the results of these have left.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, Protocol

from firesteel.runtime.chain.plan import ChainPlan
from firesteel.runtime.chain.stages import LARGEST_COLUMNS, AsyncStage, ChainStage, Emitted, Outlet
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.records.batch import MIN_WATERMARK, Batch, InputBatch, Watermark
from firesteel.runtime.records.dictionaries import plain_columns

__all__ = ["ChainExecutor", "ChainPlan", "Writable"]


FULL: Final = 2
"""A channel may have this many times its limit queued before slices become smaller."""
_now = time.perf_counter


class Writable(Protocol):
    """A channel or a consumer to which a chain writes."""

    @property
    def writable(self) -> bool:
        """Whether it takes more now."""

    @property
    def overdrawn(self) -> bool:
        """Whether it must get no more, even if a barrier that should overtake waits behind that."""


class ChainExecutor:
    """Moves batches and watermarks through a chain, one slice for each ``step``.

    Args:
        plan: the stages; outputs are attached already.
        guard: interrupt guard of the thread that calls ``step``.
        token: cancel token of the task.

    Attributes:
        records_in, records_out: running totals; out counts each record once for each edge that carries it, and for each
            sink that takes it, as Flink does (FLINK-33681).
        input_watermark: timestamp of the last watermark that went in.
        output_watermark: timestamp of the last watermark that left a stage, for other tasks and sinks.
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
        """Stages with pending work; the last one works next."""
        self._full: list[Writable] = []  # channels and consumers that took no more when they were looked at last
        self._room = LARGEST_COLUMNS
        """Most results of a slice: as many as channels in front of slow readers take."""
        self._rest: Batch | None = None  # the part of a batch fed by pieces that has not entered a stage
        self._rest_input = 0

    @property
    def pending(self) -> bool:
        """Whether ``step`` has something to do; if not, the next batch may be fed."""
        return self._rest is not None or self.working

    @property
    def working(self) -> bool:
        """Like ``pending``, but without the rest of a batch that is fed by pieces."""
        return bool(self._stack) or (bool(self._async) and self._ready() is not None)

    @property
    def waits(self) -> bool:
        """Whether all pending records wait for results that are made asynchronously."""
        return bool(self._async) and bool(self._stack) and self._stack[-1].waits and self._ready() is None

    @property
    def empty(self) -> bool:
        """Whether no record is inside the chain, and no asynchronous result is awaited."""
        return self._rest is None and not self._stack and all(stage.operator.empty for stage in self._async)

    @property
    def blocked(self) -> bool:
        """Whether ``step`` must not be called: an output or a consumer is full, or all pending records wait."""
        if self._full:
            self._full = [target for target in self._full if not target.writable]
            if self._full:
                return True
        return self.waits

    @property
    def overdrawn(self) -> bool:
        """Whether a step must wait for room even if a barrier should overtake: an output or a consumer is overdrawn."""
        return any(not target.writable and target.overdrawn for target in self._full)

    def wait_for(self, targets: Iterable[Writable]) -> None:
        """Block ``step`` until these have room, if they have become full by other writes than those of ``step``."""
        self._full += [target for target in targets if not target.writable]

    def _ready(self) -> AsyncStage | None:
        """An asynchronous stage whose results may leave although nothing goes in."""
        for stage in self._async:
            if stage.ready:
                return stage
        return None

    # -- input; only called when nothing is pending

    def feed(self, batch: Batch, input_index: int = 0) -> None:
        self.records_in += len(batch)
        self._push(batch, input_index)

    def feed_by_pieces(self, batch: Batch, input_index: int = 0) -> None:
        """Put in a batch that a barrier may overtake: if records are slow, only some at a time enter the stages."""
        self.records_in += len(batch)
        self._rest, self._rest_input = batch, input_index
        self._feed_piece()

    @property
    def rest(self) -> list[InputBatch]:
        """The part of a batch fed by pieces that has not entered the stages, so that a barrier may overtake it."""
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
        """Put in a watermark, which may only change the status to idle or active."""
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
        timers = (stage.next_timer for stage in self.plan.stages)
        return min((timestamp for timestamp in timers if timestamp is not None), default=None)

    def emit_watermarks(self) -> None:
        """Let operators that generate watermarks look at the clock, as the watermark interval has passed."""
        for stage in self.plan.watermark_stages:
            self._enter(stage)
            stage.look_at_clock()

    def _enter(self, stage: ChainStage) -> None:
        """Put a stage onto the stack, as it is about to get work; one with pending work is on it already."""
        if not stage.pending:
            self._stack.append(stage)

    # -- slices

    def step(self) -> None:
        """Work on one slice, and deliver its results.

        What user code raises leaves with ``guard.active`` still set, by which the caller knows that it is user code's.
        """
        stack = self._stack
        stage = stack[-1] if stack else None
        if self._async and (stage is None or stage.waits):
            stage = self._ready()
        if stage is None:
            if not stack and self._rest is not None:
                self._feed_piece()
            return
        self.guard.active = self._token
        began = _now()
        emitted = stage.step()
        stage.seconds += _now() - began
        self.guard.active = None
        if stack and stack[-1] is stage and not stage.pending:
            stack.pop()
        if emitted:
            self._deliver(emitted)
            if self._room < LARGEST_COLUMNS and not self._full:
                # The readers have kept up with this slice: let the next ones be larger again.
                self._limit_slices(2 * self._room)

    def _limit_slices(self, room: int) -> None:
        """Let no slice make more results than this."""
        self._room = room
        for stage in self.plan.stages:
            if stage.slices is not None:
                stage.slices.room = room

    def _deliver(self, emitted: Emitted) -> None:
        """Write the results of a slice to consumers, outputs and the stages behind, of which the first works next."""
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
        batches = outlet.for_readers(batch)
        guard, token = self.guard, self._token
        for consumer in outlet.consumers:
            self.records_out += count
            guard.active = token
            began = _now()
            consumer.take(next(batches))
            consumer.seconds += _now() - began
            guard.active = None
            if not consumer.writable and consumer not in self._full:
                self._full.append(consumer)
        for output in outlet.outputs:
            self.records_out += count
            guard.active = token
            routed = output.route(next(batches))
            guard.active = None
            for channel, part in routed:
                channel.write(part)
                if not channel.writable:
                    if channel not in self._full:
                        self._full.append(channel)
                    # One record may make any number of results, and nothing stops a slice under way. So a slice must
                    # not make many times what may wait in a channel in front of a slow reader.
                    if channel.queued_bytes > FULL * channel.limit:
                        self._limit_slices(max(1, min(self._room, count * channel.limit // channel.queued_bytes)))
        for child in outlet.children:
            child.records_in += count
            child.push(next(batches))

    def drop(self) -> None:
        """Drop all pending work, and close suspended generators of user code."""
        self._stack.clear()
        self._full, self._rest = [], None
        for stage in reversed(self.plan.stages):
            stage.drop()
