"""The command line: verbs and options, with Flink's names where Flink has them."""

from __future__ import annotations

import argparse
from typing import Any

from firesteel import __version__
from firesteel.checkpoint.savepoints import CANONICAL, FORMATS

_DESCRIPTION = "Stateful streaming in Python, on Spark: runs programs and looks after the jobs of a cluster."
_EPILOG = """\
`firesteel VERB --help` tells the options of a verb.

Where the cluster is, and which secret opens it, is read from the config.yaml in --config-dir (or FIRESTEEL_CONF_DIR):
rest.address, rest.port, firesteel.security.secret-file or firesteel.rest.token-file. -m and -D go before it. Where
nobody names a directory, it is that of the cluster of this user that runs on this host.

exit codes: 0 done; 1 the job or program failed, or the cluster refused or does not answer; 2 wrong arguments or
configuration; 130 Ctrl-C; 143 SIGTERM. A program that ends by itself with another code ends the command with it.
"""
_RUN = """\
Runs a program. Its jobs go to the cluster at rest.address:rest.port (-t remote, the default), or to a cluster inside
this process (-t local), as with `python program.py`.

Attached, it shows how far a job is and waits for its end. Ctrl-C asks whether to cancel the job (without a terminal it
cancels at once); a second Ctrl-C leaves, and the job runs on. A client that dies leaves its job running, too, unless
--shutdownOnAttachedExit is given. Detached (-d), it prints the job's id and does not wait.

Modules that the program imports from its own directory travel with the job; so do the files of -pyfs and
env.add_python_file(). Installed packages do not: the cluster needs its own.
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    top = _Parser(prog="firesteel", description=_DESCRIPTION, epilog=_EPILOG)
    top.add_argument("-v", "--version", action="version", version=f"firesteel {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)

    run = verbs.add_parser("run", help="run a program", description=_RUN)
    _common(run)
    _cluster(run)
    _program(run)
    run.add_argument("-d", "--detached", action="store_true", help="do not wait for the end of the program's jobs")
    run.add_argument("-t", "--target", choices=["local", "remote"], help="where its jobs run; sets execution.target")
    run.add_argument(
        "-s",
        "--fromSavepoint",
        dest="restore_path",
        metavar="PATH",
        help="go on from this savepoint or checkpoint (<execution.checkpointing.dir>/<job id>/chk-<n>); sets "
        "execution.state-recovery.path",
    )
    run.add_argument(
        "-claim",
        "--claimMode",
        "--restoreMode",
        "-rm",
        dest="claim_mode",
        metavar="MODE",
        help="CLAIM: what it goes on from belongs to the job, which removes it; NO_CLAIM (the default): it is never "
        "removed; sets execution.state-recovery.claim-mode",
    )
    run.add_argument(
        "-n",
        "--allowNonRestoredState",
        action="store_true",
        dest="ignore_unclaimed",
        help="drop state of operators that the program does not have any more",
    )
    run.add_argument(
        "-sae",
        "--shutdownOnAttachedExit",
        action="store_true",
        dest="shutdown_on_exit",
        help="have the jobs cancelled when this client ends before them, or dies",
    )

    info = verbs.add_parser(
        "info", help="show the plan of a program", description="Shows the plan of a program's first job; runs nothing."
    )
    _common(info)
    _program(info)
    info.add_argument("--json", action="store_true", help="the operators as JSON, as env.get_execution_plan() gives it")

    upgrade = verbs.add_parser(
        "upgrade",
        help="show what a program would do to the state of a savepoint",
        description="Builds a program's first job, restores its operators in this process from the descriptions of the "
        "state in a savepoint or retained checkpoint, and opens them; sources and sinks are not opened. Shows what "
        "becomes of each state. Nothing is submitted or changed. Ends with 1 if the job would not start.",
    )
    _common(upgrade)
    _program(upgrade)
    upgrade.add_argument("--dry-run", action="store_true", dest="dry_run", required=True, help="the only way so far")
    upgrade.add_argument(
        "-s", "--fromSavepoint", dest="restore_path", metavar="PATH", required=True, help="the savepoint or checkpoint"
    )
    upgrade.add_argument(
        "-n",
        "--allowNonRestoredState",
        action="store_true",
        dest="ignore_unclaimed",
        help="state of operators that the program does not have any more may be dropped",
    )
    upgrade.add_argument("--json", action="store_true", help="as JSON")

    list_jobs = verbs.add_parser(
        "list", help="list jobs", description="Lists running and scheduled jobs: start time, id, name and state."
    )
    _common(list_jobs)
    _cluster(list_jobs)
    which = list_jobs.add_mutually_exclusive_group()
    which.add_argument("-r", "--running", action="store_true", help="only running ones")
    which.add_argument("-s", "--scheduled", action="store_true", help="only scheduled ones")
    which.add_argument("-a", "--all", action="store_true", help="those that have ended, too")

    cancel = verbs.add_parser("cancel", help="cancel a job", description="Cancels a job.")
    _common(cancel)
    _cluster(cancel)
    cancel.add_argument("job_id", metavar="JOB_ID", help="as `firesteel list` shows it")

    checkpoint = verbs.add_parser(
        "checkpoint",
        help="take a checkpoint of a job",
        description="Has a checkpoint of a running job taken now, and waits until it is complete.",
    )
    _common(checkpoint)
    _cluster(checkpoint)
    checkpoint.add_argument("-full", "--full", action="store_true", help="with all state, not only what has changed")
    checkpoint.add_argument("job_id", metavar="JOB_ID", help="as `firesteel list` shows it")

    savepoint = verbs.add_parser(
        "savepoint",
        help="take, inspect or remove a savepoint",
        description="Has a savepoint of a running job taken, and waits until it is complete: `savepoint JOB_ID "
        "[DIRECTORY]`. `savepoint inspect PATH` shows what is in one; `savepoint --dispose PATH` removes one.",
    )
    _common(savepoint)
    _cluster(savepoint)
    savepoint.add_argument("-d", "--dispose", metavar="PATH", help="remove this savepoint")
    _format(savepoint)
    savepoint.add_argument("-dcp", "-detached", "--detached", action="store_true", help="do not wait for its end")
    savepoint.add_argument("job_id", metavar="JOB_ID", nargs="?", help="as `firesteel list` shows it; or `inspect`")
    savepoint.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        help="below which it is to be, on all hosts; default: execution.checkpointing.savepoint-dir",
    )

    inspect = verbs.add_parser(
        "savepoint-inspect",
        prog="firesteel savepoint inspect",
        help="show what is in a savepoint; also: savepoint inspect",
        description="Shows operators and states of a savepoint or a retained checkpoint in a directory that this host "
        "sees, with entries and bytes by state and key group; each file is checked, and nothing is unpickled.",
    )
    _common(inspect)
    inspect.add_argument("--json", action="store_true", help="as JSON")
    inspect.add_argument("path", metavar="PATH", help="its directory")

    stop = verbs.add_parser(
        "stop",
        help="stop a job with a savepoint",
        description="Stops a job: its sources read no further, a savepoint is taken, all results up to it are "
        "committed, and the job finishes.",
    )
    _common(stop)
    _cluster(stop)
    stop.add_argument(
        "-d",
        "--drain",
        action="store_true",
        help="end event time before: all windows fire; for a job that does not go on",
    )
    stop.add_argument(
        "-p",
        "--savepointPath",
        dest="directory",
        metavar="DIRECTORY",
        help="below which the savepoint is to be, on all hosts; default: execution.checkpointing.savepoint-dir",
    )
    _format(stop)
    stop.add_argument("job_id", metavar="JOB_ID", help="as `firesteel list` shows it")

    memory = verbs.add_parser(
        "memory",
        help="show the memory of a TaskManager",
        description="Shows how the configured memory of a TaskManager is cut into its parts.",
    )
    _common(memory)

    warm_up = verbs.add_parser(
        "warm-up",
        help="make starts faster",
        description="Makes archives of the Java classes that Spark loads, once for a user and a Java (about a minute, "
        "300 MB in ~/.cache/firesteel): starts take less time from then on.",
    )
    _common(warm_up)
    return top


class _Parser(argparse.ArgumentParser):
    def __init__(self, **keywords: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **keywords)


def _common(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--config-dir", metavar="DIR", help="directory with config.yaml; goes before FIRESTEEL_CONF_DIR")
    verb.add_argument(
        "-D",
        dest="definitions",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set an option, again and again",
    )


def _cluster(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-m",
        "--jobmanager",
        metavar="HOST:PORT",
        help="of the cluster's REST API; sets rest.address and rest.port",
    )


def _format(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-type",
        "--type",
        "--format",
        dest="format",
        type=str.upper,
        choices=FORMATS,
        default=CANONICAL,
        help="of the savepoint: canonical (any backend can read it), or native (as the backend writes checkpoints)",
    )


def _program(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-p", "--parallelism", type=int, help="parallelism of operators that set none")
    verb.add_argument(
        "-pyfs",
        "--pyFiles",
        dest="python_files",
        metavar="FILES",
        help="modules, archives and directories that travel with the jobs, separated by commas; sets python.files",
    )
    verb.add_argument("-py", "--python", action="store_true", help="accepted, as Flink wants it before the program")
    verb.add_argument("program", metavar="program.py", help="a Python program")
    verb.add_argument("arguments", nargs=argparse.REMAINDER, metavar="args", help="handed to the program")
