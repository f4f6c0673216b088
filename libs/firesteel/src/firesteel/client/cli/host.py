"""``firesteel memory``, ``warm-up`` and ``token``: what is answered on this host, without asking a cluster."""

from __future__ import annotations

import argparse
import time

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.connections import rest_token_of
from firesteel.client.console import Console
from firesteel.client.waiting import waited
from firesteel.config import options
from firesteel.config.memory import taskmanager_memory
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import ConfigurationError, FiresteelError


def memory(parsed: argparse.Namespace, console: Console) -> int:
    """Show how the configured memory of a TaskManager is divided (``firesteel memory``)."""
    settings = settings_of(parsed)
    for warning in settings.check():
        console.note(f"firesteel memory: {warning}")
    parts, slots = taskmanager_memory(settings), settings.get(options.TASKMANAGER_SLOTS)
    plain = {**parts.to_rest(), "slots": slots, "slotSize": parts.slot_size(slots)}
    console.say_result(parsed.json, parts.table(slots), plain)
    return exit_codes.DONE


def token(parsed: argparse.Namespace, console: Console) -> int:
    """Print the token of the REST API (``firesteel token``)."""
    rest_token = rest_token_of(settings_of(parsed))
    if rest_token is None:
        raise ConfigurationError(
            "nothing says which token this is: name the cluster's configuration with --config-dir, or set "
            f"{options.REST_TOKEN_FILE.key} or {options.SECRET_FILE.key}"
        )
    console.say_result(parsed.json, rest_token, {"token": rest_token})
    return exit_codes.DONE


def warm_up(parsed: argparse.Namespace, console: Console) -> int:
    """Make the class-data archives that JVMs start faster from (``firesteel warm-up``)."""
    settings = settings_of(parsed)
    from firesteel.spark.training import train  # Spark is imported by this verb alone

    started = time.monotonic()
    try:
        with CallPool("loop of its own", threads=1, deadline=None) as thread:
            work = thread.submit(train, settings.get(options.JAVA_HOME))
            archives = waited(console, "Recording what Spark loads", work.result)
    except OSError as error:
        raise FiresteelError(f"the archives could not be written: {error}") from error
    if parsed.json:
        console.say_json(
            {"archives": [{"path": str(archive.path), "bytes": archive.path.stat().st_size} for archive in archives]}
        )
        return exit_codes.DONE
    if not archives:
        console.say("This Java can't have class-data archives; starts work without, about two seconds slower.")
        return exit_codes.DONE
    for archive in archives:
        console.say(f"{archive.path}: {archive.path.stat().st_size / 1e6:.0f} MB")
    console.say(f"{time.monotonic() - started:.0f} s")
    return exit_codes.DONE
