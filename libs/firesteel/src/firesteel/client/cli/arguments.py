"""The command line: verbs and options, with Flink's names where Flink has them."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from firesteel import __version__
from firesteel.checkpoint.savepoints import CANONICAL, FORMATS
from firesteel.client.cli import exit_codes
from firesteel.client.cli.refused import (
    OF_CLUSTER_VERBS,
    OF_PROGRAMS,
    OF_PROGRAMS_HERE,
    OF_SAVEPOINT,
    refuse,
    refused_target,
)

_DESCRIPTION = "Stateful streaming in Python, on Spark: runs programs and looks after the jobs of a cluster."
_EPILOG = """\
`firesteel VERB --help` tells the options of a verb.

Where the cluster is, and which secret opens it, is read from the config.yaml in --config-dir (or FIRESTEEL_CONF_DIR):
rest.address, rest.port, firesteel.security.secret-file or firesteel.rest.token-file. -m and -D go before it. Where
nobody names a directory, it is that of the cluster of this user that runs on this host.

--json has every verb write one JSON document to standard output instead of text: the result, or {"error": ...}.

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
_DEMO = """\
Counts the words of Python's standard library, or of the files and directories that are named, in a cluster inside this
process. It is the program examples/word_count.py of the source tree: firesteel run -pym firesteel.examples.word_count
runs it on a cluster.
"""
_RUN_APPLICATION = """\
Starts a cluster for one program, runs its main() beside the Dispatcher, and ends the cluster with it: on this host, or
as an application on YARN (-t yarn). Here, TaskManagers are processes of this host, as many as its jobs need
(firesteel.resourcemanager.driver says otherwise).

The program is a .py file, a directory or archive (.zip, .pyz) with a __main__.py, a wheel, or with -pym a module.
Attached, it shows what the program prints, and ends with its exit code: 0 if the application is FINISHED or CANCELED,
that of the program or 1 if it FAILED. Detached (-d), it prints the application's id and where its REST API is.
"""

SESSION_TARGETS = ("local", "remote", "kubernetes-session", "yarn-session")
"""Targets of ``firesteel run``. Those of cluster managers are plug-ins (``targets``), whose names are known here."""
CLUSTER_TARGETS = ("remote", "kubernetes-session", "kubernetes-application", "yarn-session")
"""Targets of verbs that need a cluster."""
APPLICATION_TARGETS = ("standalone", "kubernetes-application", "yarn", "yarn-application")
"""Targets of ``firesteel run-application``."""
SAVEPOINT = ("-s", "--fromSavepoint")
_JOB = "its id, the beginning of it, or its name, as `firesteel list` shows them"


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    whole = _Parser(prog="firesteel", description=_DESCRIPTION, epilog=_EPILOG)
    whole.add_argument("-v", "--version", action="version", version=f"firesteel {__version__}")
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)

    def cluster_verb(name: str, **texts: Any) -> _Parser:
        verb: _Parser = verbs.add_parser(name, **texts)
        _common(verb)
        _cluster(verb)
        return verb

    run = cluster_verb("run", help="run a program", description=_RUN)
    _program(run)
    run.add_argument("-d", "--detached", action="store_true", help="do not wait for the end of the program's jobs")
    run.add_argument(
        "-t",
        "--target",
        type=_target(SESSION_TARGETS),
        metavar=f"{{{','.join(SESSION_TARGETS)}}}",
        help="where its jobs run; sets execution.target. kubernetes-session: in the cluster that "
        "-Dkubernetes.cluster-id=... names; yarn-session: in the application that -Dyarn.application.id=... names",
    )
    _restore(run)
    run.add_argument(
        "-sae",
        "--shutdownOnAttachedExit",
        action="store_true",
        dest="shutdown_on_exit",
        help="have the jobs cancelled when this client ends before them, or dies",
    )

    application = verbs.add_parser(
        "run-application",
        help="run a program in a cluster of its own",
        description=_RUN_APPLICATION,
    )
    _common(application)
    _program(application)
    application.add_argument("-d", "--detached", action="store_true", help="do not wait for the end of the program")
    application.add_argument(
        "-t",
        "--target",
        type=_target(APPLICATION_TARGETS),
        metavar=f"{{{','.join(APPLICATION_TARGETS)}}}",
        default="standalone",
        help="where the cluster is: processes of this host, pods on Kubernetes, or an application on YARN",
    )
    application.add_argument(
        "-jid", "--job-id", dest="job_id", metavar="ID", help="of the application and its first job: 32 hex digits"
    )
    _restore(application)
    application.add_argument(
        "-sae",
        "--shutdownOnAttachedExit",
        action="store_true",
        dest="shutdown_on_exit",
        help="end the cluster when this client ends before it, or dies",
    )

    demo = verbs.add_parser("demo", help="run a first program: a word count", description=_DEMO)
    _common(demo)
    demo.add_argument("paths", nargs="*", metavar="PATH", help="files and directories; default: the standard library")

    info = verbs.add_parser(
        "info", help="show the plan of a program", description="Shows the plan of a program's first job; runs nothing."
    )
    _common(info)
    _program(info)

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
        *SAVEPOINT, dest="restore_path", metavar="PATH", help="the savepoint or checkpoint; also behind the program"
    )
    upgrade.add_argument(
        "-n",
        "--allowNonRestoredState",
        action="store_true",
        dest="ignore_unclaimed",
        help="state of operators that the program does not have any more may be dropped",
    )

    list_jobs = cluster_verb(
        "list",
        help="list jobs",
        description="Lists running and scheduled jobs: start time, id, name and state; below that "
        "the worst that is found of them, and rates, lag, checkpoint and restarts. Those that are ill come first.",
    )
    which = list_jobs.add_mutually_exclusive_group()
    which.add_argument("-r", "--running", action="store_true", help="only running ones")
    which.add_argument("-s", "--scheduled", action="store_true", help="only scheduled ones")
    which.add_argument("-a", "--all", action="store_true", help="those that have ended, too")

    cancel = cluster_verb(
        "cancel", help="cancel jobs", description="Cancels jobs; with -s when a savepoint of each is complete."
    )
    cancel.add_argument(
        "-s",
        "--withSavepoint",
        dest="savepoint",
        metavar="DIRECTORY",
        nargs="?",
        const="",
        help="take a savepoint before, below this directory (default: execution.checkpointing.savepoint-dir); its "
        "last results may be committed twice by a job that goes on from it: `firesteel stop` has no such gap",
    )
    cancel.add_argument("jobs", metavar="JOB", nargs="*", help=_JOB)

    checkpoint = cluster_verb(
        "checkpoint",
        help="take a checkpoint of a job",
        description="Has a checkpoint of a running job taken now, and waits until it is complete.",
    )
    checkpoint.add_argument("-full", "--full", action="store_true", help="with all state, not only what has changed")
    checkpoint.add_argument("job", metavar="JOB", help=_JOB)

    savepoint = cluster_verb(
        "savepoint",
        help="take, inspect, compare or remove savepoints",
        description="Has a savepoint of a running job taken, and waits until it is complete: `savepoint JOB "
        "[DIRECTORY]`. `savepoint inspect PATH` shows what is in one, `savepoint compare BEFORE AFTER` what has "
        "changed between two; `savepoint --dispose PATH` removes one.",
    )
    savepoint.add_argument("-d", "--dispose", metavar="PATH", help="remove this savepoint")
    _format(savepoint)
    savepoint.add_argument("-dcp", "-detached", "--detached", action="store_true", help="do not wait for its end")
    refuse(savepoint, OF_SAVEPOINT)
    savepoint.add_argument("job", metavar="JOB", nargs="?", help=f"{_JOB}; or `inspect`, or `compare`")
    savepoint.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        help="below which it is to be, on all hosts; default: execution.checkpointing.savepoint-dir",
    )

    inspect = verbs.add_parser(  # without a help of its own, the list of verbs does not show it: savepoint does
        "savepoint-inspect",
        prog="firesteel savepoint inspect",
        description="Shows operators and states of a savepoint or a retained checkpoint in a directory that this host "
        "sees, with entries and bytes by state and key group; each file is checked, and nothing is unpickled.",
    )
    _common(inspect)
    inspect.add_argument(
        "--keys",
        type=int,
        default=0,
        metavar="N",
        help="the N keys of each state with the most bytes; keys and values are unpickled in this process for that",
    )
    inspect.add_argument("path", metavar="PATH", help="its directory")

    compare = verbs.add_parser(
        "savepoint-compare",
        prog="firesteel savepoint compare",
        description="Shows what has changed between two savepoints or retained checkpoints, by operator and state: "
        "what is new, gone, grown or shrunk, with entries and bytes. Operators are matched by their uids; nothing is "
        "unpickled.",
    )
    _common(compare)
    compare.add_argument("before", metavar="BEFORE", help="directory of the earlier one")
    compare.add_argument("after", metavar="AFTER", help="directory of the later one")

    stop = cluster_verb(
        "stop",
        help="stop jobs with a savepoint",
        description="Stops jobs: their sources read no further, a savepoint is taken, all results up to it are "
        "committed, and the jobs finish.",
    )
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
    stop.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB)

    restart = cluster_verb(
        "restart",
        help="stop a job with a savepoint and run its program from there",
        description="Stops a job with a savepoint, and runs a program from it: the same one, or another version of it "
        "(`firesteel upgrade` says before what would become of its state).",
    )
    restart.add_argument(
        "--savepointPath",
        dest="directory",
        metavar="DIRECTORY",
        help="below which the savepoint is to be, on all hosts; default: execution.checkpointing.savepoint-dir",
    )
    _format(restart)
    restart.add_argument("-d", "--detached", action="store_true", help="do not wait for the end of the program's jobs")
    restart.add_argument(
        "-n",
        "--allowNonRestoredState",
        action="store_true",
        dest="ignore_unclaimed",
        help="drop state of operators that the program does not have any more",
    )
    restart.set_defaults(drain=False, restore_path=None, shutdown_on_exit=False)
    restart.add_argument("job", metavar="JOB", help=_JOB)
    _program(restart)

    show = cluster_verb(
        "show",
        help="show what a job does",
        description="Shows jobs, also those that have ended: state, checkpoints, restarts, last failure, vertices, and "
        "the address of their page in the dashboard.",
    )
    show.add_argument(
        "--events",
        action="store_true",
        help="what has happened to them, when, and who asked for it",
    )
    show.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB)

    page = cluster_verb(
        "open",
        help="open the dashboard",
        description="Prints the address of the dashboard, or of a job's page in it, and opens it in a browser where "
        "there is a desktop.",
    )
    page.add_argument("job", metavar="JOB", nargs="?", help=_JOB)

    wait = cluster_verb(
        "wait",
        help="wait until jobs have ended",
        description="Waits until jobs have ended. Ends with 1 if one of them has failed or was cancelled.",
    )
    wait.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB)

    logs = cluster_verb(
        "logs",
        help="show logs",
        description="Shows the end of a log: what all processes have logged about a job, in order of time, or the log "
        "of a TaskManager, or of the JobManager (`jobmanager`). Without a name it lists whose logs there are.",
    )
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    logs.add_argument(
        "-n", "--lines", type=_count, default=100, metavar="LINES", help="how many of the last lines (100); 0: none"
    )
    logs.add_argument("--level", metavar="LEVEL", help="of a job: least level, such as WARN")
    logs.add_argument("--grep", metavar="TEXT", help="of a job: only records with this text, in any case of letters")
    logs.add_argument("--file", metavar="NAME", help="another file of its owner, as --list names it")
    logs.add_argument("--list", action="store_true", help="names and sizes of the owner's files")
    logs.add_argument("owner", metavar="JOB|TASKMANAGER|jobmanager", nargs="?", help="whose log")

    loglevel = cluster_verb(
        "loglevel",
        help="show or change log levels while the cluster runs",
        description="Shows the levels of loggers, or changes them at all services, JobMasters and slots of the cluster "
        "at once. A level that was changed holds until the process ends; env.log.level holds at its start.",
    )
    loglevel.add_argument("logger", metavar="LOGGER", nargs="?", help="such as firesteel_jobmaster; root: all others")
    loglevel.add_argument(
        "level", metavar="LEVEL", nargs="?", help="DEBUG, INFO, WARN, ERROR, OFF; INHERIT: none of its own"
    )

    top = cluster_verb(
        "top",
        help="show what jobs do, live",
        description="Shows the vertices of running jobs: records a second, how busy and how back-pressured they are, "
        "how far their watermarks lag, and checkpoints. On a terminal it goes on until q or Ctrl-C; else it shows one "
        "moment.",
    )
    top.add_argument("-i", "--interval", type=_seconds, default=2.0, metavar="SECONDS", help="between two looks (2)")
    top.add_argument("-1", "--once", action="store_true", help="one moment, also on a terminal")
    top.add_argument("job", metavar="JOB", nargs="?", help="only this job")

    doctor = cluster_verb(
        "doctor",
        help="find out what is wrong with this host and the cluster",
        description="Looks at Python packages, Java, Spark, memory, disk, ports and clock of this host, at the "
        "configuration, at the storage of checkpoints, and at the cluster: whether it answers, versions and clocks of "
        "its TaskManagers, free slots. Each finding says what to do. Ends with 1 if something is wrong; warnings are "
        "no errors, unless --strict is given.",
    )
    doctor.add_argument("--strict", action="store_true", help="end with 1 for warnings, too")
    doctor.add_argument("--all", action="store_true", help="show what is in order, too")
    doctor.add_argument(
        "--self-test",
        action="store_true",
        help="look at this host alone: paths, names, loopback, locks, Java, encoding, disk and limits; then run a job "
        "in a program's own cluster and in one of four processes (about 30 s), of which nothing stays",
    )

    session = verbs.add_parser(
        "kubernetes-session",
        help="make a session cluster on Kubernetes",
        description="Makes a session cluster on Kubernetes, named by -Dkubernetes.cluster-id=..., for programs of "
        "`firesteel run -t kubernetes-session`. Its ResourceManager makes TaskManagers as jobs need them. The "
        "kubeconfig says where Kubernetes is.",
    )
    _common(session)
    session.add_argument("--stop", action="store_true", help="remove it, with its jobs and TaskManagers")

    session = verbs.add_parser(
        "yarn-session",
        help="start a cluster on YARN",
        description="Starts a cluster as an application on YARN, for programs of `firesteel run -t yarn-session`. "
        "HADOOP_CONF_DIR says where YARN is. Attached, it stays until the session ends, and Ctrl-C ends that.",
    )
    _common(session)
    session.add_argument("-d", "--detached", action="store_true", help="do not wait for its end")
    session.add_argument("-nm", "--name", help="of the application; sets yarn.application.name")
    session.add_argument("-qu", "--queue", help="sets yarn.application.queue")
    session.add_argument("-at", "--applicationType", dest="application_type", metavar="TYPE", help="as YARN shows it")
    session.add_argument("-nl", "--nodeLabel", dest="node_label", metavar="LABEL", help="of the nodes to run on")
    session.add_argument(
        "-jm", "--jobManagerMemory", dest="jobmanager_memory", metavar="SIZE",
        help="of the JobManager's container; a bare number means MiB",
    )  # fmt: skip
    session.add_argument(
        "-tm", "--taskManagerMemory", dest="taskmanager_memory", metavar="SIZE", help="of a TaskManager's container"
    )
    session.add_argument("-s", "--slots", metavar="N", help="of a TaskManager")
    session.add_argument(
        "-t", "--ship", metavar="FILES", help="for the working directory of each container; ; between them"
    )
    session.add_argument(
        "-id", "--applicationId", dest="yarn_application", metavar="ID", help="of a session that runs: wait for its end"
    )
    session.add_argument("--stop", action="store_true", help="end the session of -id")

    yarn_logs = verbs.add_parser(
        "yarn-logs",
        help="show the logs of an application on YARN",
        description="Shows what YARN has collected of the logs of all containers of an application that has ended; of "
        "one that runs, where its containers' logs are.",
    )
    _common(yarn_logs)
    yarn_logs.add_argument("application", metavar="ID", nargs="?", help="as `yarn application -list` shows it")

    completion = verbs.add_parser(
        "completion",
        help="write a script that completes this command in a shell",
        description='Writes a script to standard output. bash: eval "$(firesteel completion bash)" in ~/.bashrc; zsh: '
        "the same in ~/.zshrc, after compinit; fish: firesteel completion fish > "
        "~/.config/fish/completions/firesteel.fish",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="whose")

    cluster_verb(
        "token",
        help="print the token of the REST API and the dashboard",
        description="Prints the token that opens the REST API and the dashboard of the cluster: the one in "
        "firesteel.rest.token-file, or the one that is made from the cluster's secret. Who has it may run programs on "
        "the cluster.",
    )

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
    whole.verbs = verbs.choices
    return whole


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the words, what may be meant, and where to read on.

    Attributes:
        verbs: parsers of the verbs by their names; of a verb itself there are none.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **keywords)
        self.verbs: Mapping[str, _Parser] = {}

    def parse_args(  # type: ignore[override] # nobody passes a namespace of another class
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Read the words; what the verb does not know is an error of the verb, which knows its own options."""
        words = list(sys.argv[1:] if args is None else args)
        if self.verbs and words and words[0].startswith("-") and words[0] not in self._options():
            self._refuse(words[0])  # else argparse would ask for a verb
        parsed, unknown_words = self.parse_known_args(words, namespace)
        if unknown_words:
            self.verbs.get(getattr(parsed, "verb", ""), self)._refuse(unknown_words[0])
        return parsed

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"{word!r} is one word too many")
        option = word.partition("=")[0]
        alike = difflib.get_close_matches(option, self._options(), 1)
        self.error(f"there is no option {option}." + (f" Do you mean {alike[0]}?" if alike else ""))

    def _options(self) -> list[str]:
        actions = [action for action in self._actions if action.help is not argparse.SUPPRESS]
        return [spelling for action in actions for spelling in action.option_strings]

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        end = "" if message.endswith((".", "?")) else "."
        self.exit(exit_codes.WRONG, f"{self.prog}: {message}{end} `{self.prog} --help` tells more\n")


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
    verb.add_argument("--json", action="store_true", help="the result, or the error, as JSON on standard output")


def _cluster(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-m",
        "--jobmanager",
        metavar="HOST:PORT",
        help="of the cluster's REST API; sets rest.address and rest.port",
    )
    if not verb.prog.endswith(" run"):
        verb.add_argument("-t", "--target", type=_target(CLUSTER_TARGETS), help=argparse.SUPPRESS)
    verb.add_argument(
        "-yid",
        "--yarnapplicationId",
        dest="yarn_application",
        metavar="ID",
        help="the cluster is this application on YARN; as -Dyarn.application.id=ID",
    )
    refuse(verb, OF_CLUSTER_VERBS)


def _target(targets: tuple[str, ...]) -> Callable[[str], str]:
    def target(text: str) -> str:
        if text not in targets:
            instead = refused_target(text)
            raise argparse.ArgumentTypeError(
                f"{text}: {instead}" if instead else f"{text!r} is none of: {', '.join(targets)}"
            )
        return text

    return target


def _restore(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "-s",
        "--fromSavepoint",
        dest="restore_path",
        metavar="PATH",
        help="go on from this savepoint or checkpoint (<execution.checkpointing.dir>/<job id>/chk-<n>); sets "
        "execution.state-recovery.path",
    )
    verb.add_argument(
        "-claim",
        "--claimMode",
        "--restoreMode",
        "-rm",
        dest="claim_mode",
        metavar="MODE",
        help="CLAIM: what it goes on from belongs to the job, which removes it; NO_CLAIM (the default): it is never "
        "removed; sets execution.state-recovery.claim-mode",
    )
    verb.add_argument(
        "-n",
        "--allowNonRestoredState",
        action="store_true",
        dest="ignore_unclaimed",
        help="drop state of operators that the program does not have any more",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def _seconds(text: str) -> float:
    try:
        interval = float(text)
    except ValueError:
        interval = 0.0
    if not 0.1 <= interval <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.1 to 3600")
    return interval


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
    verb.add_argument(
        "-pyreq",
        "--pyRequirements",
        dest="python_requirements",
        metavar="FILE",
        help="a requirements.txt whose packages the jobs' slots have; sets python.requirements",
    )
    verb.add_argument(
        "-pyarch",
        "--pyArchives",
        dest="python_archives",
        metavar="FILES",
        help="archives that are unpacked where the jobs' slots work, separated by commas; sets python.archives",
    )
    verb.add_argument(
        "-pyexec",
        "--pyExecutable",
        dest="python_executable",
        metavar="PYTHON",
        help="the Python that runs the jobs' slots; sets python.executable",
    )
    verb.add_argument("-py", "--python", action="store_true", help="accepted, as Flink wants it before the program")
    verb.add_argument(
        "-pym",
        "--pyModule",
        dest="as_module",
        action="store_true",
        help="what follows is the name of a module, which is found in this directory or in -pyfs",
    )
    refuse(verb, OF_PROGRAMS)
    if verb.prog.endswith(" run-application"):
        verb.add_argument(
            "-pyclientexec",
            "--pyClientExecutable",
            dest="client_executable",
            metavar="PYTHON",
            help="the Python that runs main(); default: that of -pyexec; sets python.client.executable",
        )
    else:
        refuse(verb, OF_PROGRAMS_HERE)
    verb.add_argument("program", metavar="program.py", help="a Python program; with -pym, a module")
    arguments = verb.add_argument("arguments", nargs=argparse.REMAINDER, metavar="args", help="handed to the program")
    arguments.required = False  # else a verb without a program would ask for its arguments, too
