"""The function of a slot's Spark task, which a Python worker runs from the allocation of the slot to its release.

It also runs in a plain process without Spark. Nothing of the user is unpickled before the TaskManager has accepted the
slot, and no error is ever raised into Spark, which would start the task again for ever.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from firesteel.core.clock import SystemClock
from firesteel.core.environment import scrub
from firesteel.core.errors import ConfigurationError, FleetError, ProtocolError
from firesteel.core.forks import end_if_child, stop_watching, watch_forks
from firesteel.core.process import die_with_parent, end_family, keep_freed_memory, lead_own_group
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from firesteel.protocol.slot_ends import crash_path
from firesteel.runtime.exchange import Exchange
from firesteel.runtime.loop.interrupts import Interrupter
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.slot.control import ControlChannel, Message
from firesteel.runtime.slot.deaths import announce_death_to
from firesteel.runtime.slot.slot import Slot, set_log_levels
from firesteel.runtime.slot.slot_logging import SlotLogHandler
from firesteel.runtime.slot.slot_process import run_in
from firesteel.runtime.slot.stdio import OutputForwarder
from firesteel.runtime.slot.surroundings import listen_addresses, remove_wiring

logger = logging.getLogger(__name__)
REGISTER_SECONDS: Final = 30.0
"""Time for each answer of the TaskManager during registration."""
CLOSE_SECONDS: Final = 1.0
"""Time to send the last messages at the end of the slot."""
Outcome = tuple[SlotOutcome, str]


def slot_main(launches: Iterator[SlotLaunch]) -> Iterator[Outcome]:
    """Run one slot; yields how it ended.

    Args:
        launches: one launch; none in an empty partition.
    """
    for launch in launches:
        try:
            yield _run(launch)
        except Exception:  # a task that raises would be started again by Spark, for ever
            yield SlotOutcome.UNREGISTERED, traceback.format_exc()


def serve_in_other_interpreter(about: Mapping[str, Any]) -> None:
    """Serve the slot in the job's own interpreter, which `run_in` has started, then end the process."""
    die_with_parent(about["parent"])
    lead_own_group()
    try:
        outcome = serve(SlotLaunch(**about["launch"]), about["attempt"], about["environment"])
    finally:
        end_family()
    assert isinstance(outcome, tuple), "the TaskManager prepared another environment meanwhile"
    if outcome[1]:
        print(f"slot {about['launch']['allocation_id']}: {outcome[1]}", file=sys.stderr)


def _run(launch: SlotLaunch) -> Outcome:
    die_with_parent()
    lead_own_group()
    keep_freed_memory()
    scrub(os.environ)
    announce_death_to(launch.control_socket)
    attempt = _spark_attempt()
    try:
        answer = serve(launch, attempt, "")
        return run_in(launch, attempt, answer) if isinstance(answer, dict) else answer
    finally:
        end_family()


def serve(launch: SlotLaunch, attempt: int, environment: str) -> Outcome | Message:
    """Register a slot and run it to its end.

    Args:
        launch: the launch, as the fleet got it.
        attempt: attempt of the Spark task.
        environment: id of the Python environment in which this process runs; empty = the cluster's.

    Returns:
        How it ended, or the TaskManager's message ``run_in`` that names another environment to run it in.
    """
    here = os.environ.get("SPARK_EXECUTOR_ID")
    if here is not None and launch.executor_id and here != launch.executor_id:
        return SlotOutcome.MISPLACED, f"runs on executor {here}, belongs to {launch.executor_id}"
    if threading.current_thread() is not threading.main_thread():
        return SlotOutcome.UNREGISTERED, "a slot has to run on the main thread of its process"
    clock = SystemClock()
    loop = TaskLoop(clock)
    interrupter = Interrupter()
    exchange: Exchange | None = None
    channel: ControlChannel | None = None
    ended = SlotOutcome.UNREGISTERED
    try:
        exchange = Exchange(loop, listen_addresses(_socket_path(launch)), clock)
        slot = Slot(launch.allocation_id, loop, exchange, interrupter, clock)
        channel = ControlChannel(launch.control_socket, clock, slot.on_message, slot.on_closed, slot.tick)
        loop.on_error = slot.fail
        answer = channel.register(
            {
                "type": "register",
                "version": PROTOCOL_VERSION,
                "allocation_id": launch.allocation_id,
                "pid": os.getpid(),
                "spark_attempt": attempt,
                "executor_id": launch.executor_id if here is None else here,
                "data_address": exchange.address,
                "environment": environment,
            },
            REGISTER_SECONDS,
        )
        if answer["type"] == "run_in":
            return answer
        if answer["type"] == "rejected":
            return SlotOutcome.MISPLACED, str(answer.get("reason", "rejected"))
        ended = SlotOutcome.RETURNED
        forward = _forwarder
        streams = forward(channel, "stdout", launch.control_socket), forward(channel, "stderr", launch.control_socket)
        slot.attach(channel, streams)
        remove_wiring()
        with _crashes(launch.control_socket), _surroundings(slot, channel, interrupter, streams, clock):
            set_log_levels(answer.get("log_levels") or {})
            watch_forks()
            channel.start()
            loop.run()
            all_ended = slot.join_threads()
            slot.close_telemetry()
        return ended, "" if all_ended else "a blocking function had not returned"
    except SystemExit as error:
        end_if_child(error)
        raise
    except (ConfigurationError, FleetError, ProtocolError) as error:
        return ended, str(error)
    except Exception:  # a task that raises would be started again by Spark, for ever
        return ended, traceback.format_exc()
    finally:
        stop_watching()
        if exchange is not None:
            exchange.close()
        if channel is not None:
            channel.close(CLOSE_SECONDS)
        loop.close()


@contextmanager
def _surroundings(
    slot: Slot,
    channel: ControlChannel,
    interrupter: Interrupter,
    forward: tuple[OutputForwarder, OutputForwarder],
    clock: SystemClock,
) -> Iterator[None]:
    """Set up what user code sees of the process: streams, signals, logs, ``__main__``; restores them afterwards."""
    streams = sys.stdout, sys.stderr
    main, path = sys.modules["__main__"], list(sys.path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    on_sigint = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the client, which ends us in order
    interrupter.install()
    handler = SlotLogHandler(channel.send, clock, slot.log_fields)
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    sys.stdout, sys.stderr = forward
    try:
        yield
    finally:
        for stream in forward:
            stream.flush()
        sys.stdout, sys.stderr = streams
        for stream in forward:
            if (descriptor := stream.forget_descriptor()) >= 0:
                os.close(descriptor)
        handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        interrupter.uninstall()
        signal.signal(signal.SIGINT, on_sigint)
        sys.modules["__main__"] = main
        sys.path[:] = path


@contextmanager
def _crashes(control_socket: str) -> Iterator[None]:
    """Let a crash of native code write its stacks to a file, which the TaskManager shows to the user."""
    path = crash_path(control_socket, os.getpid())
    try:
        file = path.open("wb")
    except OSError as error:
        logger.warning("crashes can't be written to %s: %s", path, error)
        yield
        return
    with file:
        faulthandler.enable(file)
        try:
            yield
        finally:
            faulthandler.disable()
            path.unlink(missing_ok=True)


def _forwarder(channel: ControlChannel, stream: str, control_socket: str) -> OutputForwarder:
    def open_pipe() -> int:
        path = os.path.join(os.path.dirname(os.path.abspath(control_socket)), f"{os.getpid()}.{stream}")
        os.mkfifo(path, 0o600)
        descriptor = os.open(path, os.O_RDWR)  # opening it only for writing would wait for the TaskManager
        channel.send({"type": "output_pipe", "stream": stream, "path": path})
        return descriptor

    return OutputForwarder(lambda text: channel.send_output(stream, text), stream, open_pipe)


def _socket_path(launch: SlotLaunch) -> str:
    """The path of the exchange's socket. It has the pid, because two copies of one slot must not share it."""
    directory = os.path.dirname(os.path.abspath(launch.control_socket))
    return os.path.join(directory, f"{launch.allocation_id[:16]}-{os.getpid():x}.sock")


def _spark_attempt() -> int:
    """The attempt of the Spark task that this process runs; 0 outside of Spark."""
    module = sys.modules.get("pyspark.taskcontext")
    context = module.TaskContext.get() if module is not None else None
    return int(context.attemptNumber()) if context is not None else 0
