"""``firesteel memory`` and ``firesteel warm-up``: what concerns this host and no cluster."""

from __future__ import annotations

import argparse
import time

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.memory import taskmanager_memory


def memory(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel memory``."""
    settings = settings_of(parsed)
    for warning in settings.check():
        console.note(f"firesteel memory: {warning}")
    console.say(taskmanager_memory(settings).table(settings.get(options.TASKMANAGER_SLOTS)))
    return exit_codes.DONE


def warm_up(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel warm-up``."""
    settings = settings_of(parsed)
    from firesteel.spark.training import train  # Spark is imported by this verb alone

    started = time.monotonic()
    try:
        archives = train(settings.get(options.JAVA_HOME))
    except OSError as error:
        console.note(f"firesteel warm-up: the archives could not be written: {error}")
        return exit_codes.FAILED
    if not archives:
        console.say("This Java can't have class-data archives; starts work without, about two seconds slower.")
        return exit_codes.DONE
    for archive in archives:
        console.say(f"{archive.path}: {archive.path.stat().st_size / 1e6:.0f} MB")
    console.say(f"{time.monotonic() - started:.0f} s")
    return exit_codes.DONE
