"""``python -m firesteel_dispatcher.jobmanager``: the JobManager of a session cluster, as a container has it.

It runs Dispatcher, ResourceManager and JobMaster host as processes of their own, and starts those again that die. A
signal ends it: the next one goes on with the jobs.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from firesteel.config.load import CONFIG_FILE, load_settings
from firesteel.core.errors import ConfigurationError
from firesteel.service.logs import setup_logging
from firesteel.service.supervisor import OVER, SERVICES, STOPPED, Supervisor, service_command

logger = logging.getLogger(__name__)
EXIT_FAILED: Final = 1
EXIT_WRONG: Final = 2
EXIT_TERMINATED: Final = 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    parser = argparse.ArgumentParser(prog="firesteel-jobmanager", description=__doc__, allow_abbrev=False)
    parser.add_argument("-c", "--config-dir", type=Path, metavar="DIR", required=True, help="directory of config.yaml")
    parser.add_argument(
        "-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    parsed = parser.parse_args(argv)
    folder = parsed.config_dir.absolute()
    try:
        load_settings(config_file=folder / CONFIG_FILE, definitions=parsed.definitions).check()
    except ConfigurationError as error:
        print(f"firesteel-jobmanager: {error}", file=sys.stderr, flush=True)
        return EXIT_WRONG
    setup_logging()
    commands = {name: service_command(name, folder, parsed.definitions) for name in SERVICES}
    reason = Supervisor(commands, {}, lambda: False).run()
    if reason in (OVER, STOPPED):
        return EXIT_TERMINATED
    print(f"firesteel-jobmanager: gives up: {reason}", file=sys.stderr, flush=True)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
