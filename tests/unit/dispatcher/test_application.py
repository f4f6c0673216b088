"""Applications: what follows from the end of main() and from the states of jobs; which run is which."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.cli.arguments import parser as cli_parser
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, IllegalTransitionError, JobCancelledError, class_name
from firesteel.core.ids import derived_job_id, derived_job_ids
from firesteel.rest.application_views import application_details, application_exceptions, application_row
from firesteel_dispatcher.application import (
    NO_JOB_TEXT,
    Application,
    ApplicationState,
    ApplicationStep,
    MainEnd,
)
from firesteel_dispatcher.application_mode import ApplicationSettings, read_arguments, record_of, resume
from firesteel_dispatcher.program_files import check_program
from firesteel_dispatcher.programs import UploadedPrograms
from firesteel_dispatcher.standalone_job import definitions_of, parser
from tests.archives import job_row

ID = "ab" * 16
WELL = MainEnd(0)
RAISED = MainEnd(1, "Traceback: boom", "ValueError")


def running(**fields: Any) -> Application:
    application = Application(ID, "p.py", **fields)
    application.timestamps["CREATED"] = 1
    application.move(ApplicationState.RUNNING, 2)
    return application


def test_an_application_is_finished_when_main_and_all_jobs_have_ended() -> None:
    application = running()
    assert application.look(None, {}, 3) == []
    assert application.look(WELL, {"a": "FINISHED", "b": "RUNNING"}, 4) == []
    assert application.state is ApplicationState.RUNNING  # a job of execute_async() runs on
    assert application.look(WELL, {"a": "FINISHED", "b": "FINISHED"}, 5) == []
    assert (application.state, application.exit_code, application.timestamps["FINISHED"]) == (
        ApplicationState.FINISHED,
        0,
        5,
    )


def test_a_job_that_was_forgotten_has_been_there() -> None:
    application = running()
    application.look(None, {"a": "FINISHED"}, 3)
    application.look(WELL, {}, 4)
    assert application.state is ApplicationState.FINISHED


def test_a_program_without_a_job_fails() -> None:
    application = running()
    assert application.look(WELL, {}, 3) == []
    assert (application.state, application.exit_code) == (ApplicationState.FAILED, 1)
    assert application.exceptions[0]["stacktrace"] == NO_JOB_TEXT


def test_an_exception_of_main_cancels_the_jobs_and_is_told() -> None:
    application = running()
    assert application.look(RAISED, {"a": "RUNNING", "b": "FINISHED"}, 3) == [ApplicationStep.CANCEL_JOBS]
    assert application.state is ApplicationState.FAILING
    assert application.look(RAISED, {"a": "CANCELED", "b": "FINISHED"}, 4) == []
    assert (application.state, application.exit_code) == (ApplicationState.FAILED, 1)
    (entry,) = application.exceptions
    assert (entry["exceptionName"], entry["stacktrace"], entry["timestamp"]) == ("ValueError", "Traceback: boom", 3)


@pytest.mark.parametrize(("code", "shown"), [(3, 3), (-9, 1)])
def test_the_exit_code_is_the_programs_if_it_has_one(code: int, shown: int) -> None:
    application = running()
    application.look(MainEnd(code, "", "SystemExit"), {"a": "FINISHED"}, 3)
    assert (application.state, application.exit_code) == (ApplicationState.FAILED, shown)


@pytest.mark.parametrize(
    ("state", "end"), [("FAILED", ApplicationState.FAILED), ("CANCELED", ApplicationState.CANCELED)]
)
def test_a_job_that_ends_badly_ends_all(state: str, end: ApplicationState) -> None:
    application = running()
    assert application.look(None, {"a": state, "b": "RUNNING"}, 3) == [
        ApplicationStep.END_MAIN,
        ApplicationStep.CANCEL_JOBS,
    ]
    assert application.look(MainEnd(143, "", "SystemExit"), {"a": state, "b": "CANCELED"}, 4) == []
    assert application.state is end
    assert application.exit_code == (143 if end is ApplicationState.FAILED else 0)


def test_a_job_that_ends_badly_ends_nothing_where_that_was_said() -> None:
    application = running(terminate_on_any_job=False)
    assert application.look(None, {"a": "FAILED"}, 3) == []
    application.look(WELL, {"a": "FAILED"}, 4)
    assert application.state is ApplicationState.FINISHED


def test_main_that_dies_of_a_cancelled_job_is_cancelled() -> None:
    application = running(terminate_on_any_job=False)
    application.look(MainEnd(1, "cancelled", class_name(JobCancelledError("x"))), {"a": "CANCELED"}, 3)
    assert application.state is ApplicationState.CANCELED


def test_a_cancelled_application_ends_main_and_its_jobs_and_is_no_failure() -> None:
    application = running()
    application.cancel(3)
    assert application.look(None, {"a": "RUNNING"}, 4) == [ApplicationStep.END_MAIN, ApplicationStep.CANCEL_JOBS]
    application.look(MainEnd(143, "the program ended with 143", "SystemExit"), {"a": "CANCELED"}, 5)
    assert (application.state, application.exit_code, application.exceptions) == (ApplicationState.CANCELED, 0, [])
    application.cancel(6)
    assert application.state is ApplicationState.CANCELED


def test_no_other_moves() -> None:
    with pytest.raises(IllegalTransitionError):
        running().move(ApplicationState.CANCELED, 3)


def test_ids_of_jobs_follow_from_that_of_the_application() -> None:
    first, second, third = islice(derived_job_ids(ID), 3)
    assert first == ID
    assert len({first, second, third}) == 3
    assert list(islice(derived_job_ids(ID), 3)) == [first, second, third]
    assert derived_job_id("cluster", 0) != derived_job_id("cluster", 1) != derived_job_id("other", 1)


def ended(state: ApplicationState = ApplicationState.FINISHED) -> Application:
    return Application(resume(SETTINGS, None, False).id, "p", state=state, exit_code=0)


SETTINGS = ApplicationSettings("p.py", cluster_id="c", start_id="s1")


def test_what_was_not_ended_goes_on_under_its_ids() -> None:
    first = resume(SETTINGS, None, False)
    assert (first.run, first.ended, first.is_new) == (0, None, True)
    going = Application(first.id, "p", state=ApplicationState.RUNNING)
    again = resume(ApplicationSettings("p.py", cluster_id="c", start_id="s2"), record_of(SETTINGS, 0, going), False)
    assert (again.id, again.run, again.ended, again.is_new) == (first.id, 0, None, False)


def test_what_has_ended_is_not_run_again_by_a_restart_nor_by_who_stood_by() -> None:
    record = record_of(SETTINGS, 0, ended())
    for settings, stood_by in (
        (SETTINGS, False),
        (ApplicationSettings("p.py", start_id="s2"), True),
        (ApplicationSettings("p.py", start_id="s2", runs_again=False), False),
    ):
        start = resume(settings, record, stood_by)
        assert start.ended is not None
        assert start.ended.state is ApplicationState.FINISHED


def test_another_start_is_another_run_with_other_ids() -> None:
    other = ApplicationSettings("p.py", cluster_id="c", start_id="s2")
    start = resume(other, record_of(SETTINGS, 0, ended()), False)
    assert (start.run, start.ended) == (1, None)
    assert start.id != resume(SETTINGS, None, False).id
    fixed = ApplicationSettings("p.py", job_id=ID, start_id="s2")
    assert resume(fixed, record_of(SETTINGS, 4, ended()), False).id == ID


def test_settings() -> None:
    assert ApplicationSettings.from_settings(Settings({})) is None
    settings = ApplicationSettings.from_settings(
        Settings({"firesteel.application.program": "/p.py", "firesteel.application.arguments": '["a", "b c"]'})
    )
    assert settings is not None
    assert (settings.program, settings.arguments, settings.cluster_id) == ("/p.py", ("a", "b c"), "default")
    for wrong in ("a", "{}", "[1]"):
        with pytest.raises(ConfigurationError, match="JSON array"):
            read_arguments(wrong)
    with pytest.raises(ConfigurationError, match="job id"):
        ApplicationSettings.from_settings(
            Settings({"firesteel.application.program": "/p.py", "firesteel.application.job-id": "x"})
        )


def test_views_of_a_program_and_its_jobs() -> None:
    application = running()
    jobs = [job_row(ID, "FINISHED", 3, 4)]
    row = application_row(ID, application, jobs, 10)
    assert (row["name"], row["status"], row["end-time"], row["duration"]) == ("p.py", "RUNNING", -1, 9)
    assert row["jobs"] == {"FINISHED": 1}
    application.look(RAISED, {ID: "FINISHED"}, 11)
    details = application_details(ID, application, jobs, [], 12)
    assert (details["status"], details["end-time"], details["timestamps"]["FAILED"]) == ("FAILED", 11, 11)
    assert application_exceptions(application, [])["exceptionHistory"]["entries"][0]["exceptionName"] == "ValueError"


def test_jobs_whose_program_is_unknown_make_one_application() -> None:
    jobs = [job_row(ID, "FINISHED", 3, 4), job_row("cd" * 16, "RUNNING", 5)]
    row = application_row(ID, None, jobs, 10)
    assert (row["status"], row["start-time"], row["end-time"]) == ("RUNNING", 3, -1)


def test_programs_that_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("print(1)")
    (tmp_path / "bad.py").write_text("print(")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mod.py").write_text("")
    wheel, empty = tmp_path / "w-1-py3-none-any.whl", tmp_path / "e.zip"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("w.py", "def go(): pass")
        archive.writestr("w-1.dist-info/entry_points.txt", "[console_scripts]\nw = w:go\n")
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("m.py", "")
    several = tmp_path / "v-1-py3-none-any.whl"
    with zipfile.ZipFile(several, "w") as archive:
        archive.writestr("v.py", "")
        archive.writestr("v-1.dist-info/entry_points.txt", "[console_scripts]\na = v:a\nb = v:b\n")
    with pytest.raises(ConfigurationError, match=r"several console scripts.*v:a, v:b"):
        check_program(several)
    check_program(several, "v:b")
    check_program(tmp_path / "p.py")
    check_program(wheel)
    check_program(empty, "m")
    check_program(tmp_path / "folder", "mod")
    for path, said in (
        ("bad.py", "no program of Python"),
        ("folder", "no __main__.py"),
        ("e.zip", "neither a __main__.py"),
        ("nothing.py", "is not there"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            check_program(tmp_path / path)


def words(*arguments: str) -> list[str]:
    return definitions_of(parser().parse_args(list(arguments)))


def test_the_command_line_of_a_standalone_job(tmp_path: Path) -> None:
    definitions = words(
        "-D", "a=b", "--python", str(tmp_path / "p.py"), "--job-id", ID, "-s", "sp", "-n", "x", "--python", "y"
    )
    assert definitions == [
        f"firesteel.application.program={tmp_path / 'p.py'}",
        'firesteel.application.arguments=["x", "--python", "y"]',
        f"firesteel.application.job-id={ID}",
        f"execution.state-recovery.path={Path('sp').absolute()}",
        "execution.state-recovery.ignore-unclaimed-state=true",
        "a=b",
    ]
    (tmp_path / "mod.py").write_text("")
    definitions = words("--pyFiles", str(tmp_path), "--pyModule", "mod")
    assert f"firesteel.application.program={tmp_path}" in definitions
    assert "firesteel.application.entry=mod" in definitions
    with pytest.raises(ConfigurationError, match="no program is named"):
        words("--pyModule", "nowhere")
    assert "firesteel.application.program=s3://bucket/p.py" in words("--python", "s3://bucket/p.py")
    with pytest.raises(ConfigurationError, match="no file system for ftp"):
        words("--python", "ftp://name/p.py")
    with pytest.raises(ConfigurationError, match=r"end in one of \.py"):
        words("--python", "s3://bucket/folder")


def test_the_commands_of_the_page_are_understood() -> None:
    page = (Path(__file__).parents[3] / "docs" / "application-mode.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    ours = [line.partition("run-application ")[2].split() for line in lines if "run-application" in line]
    theirs = [line.partition(".sh start ")[2].split() for line in lines if "standalone-job.sh start " in line]
    assert (len(ours), len(theirs)) == (2, 1)
    for arguments in ours:
        assert cli_parser().parse_args(["run-application", *arguments]).program == "program.py"
    for arguments in theirs:
        assert definitions_of(parser().parse_args(arguments))[0].endswith("program.py")


def test_a_program_is_brought_from_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Files:
        def __init__(self, settings: Settings) -> None:
            pass

        def of(self, path: str) -> Files:
            return self

        def open(self, path: str) -> io.BytesIO:
            if not path.startswith("s3://bucket/dir/"):
                raise FileNotFoundError(path)
            return io.BytesIO(b"print(1)")

    monkeypatch.setattr("firesteel_dispatcher.programs.FileSystems", Files)
    programs = UploadedPrograms(tmp_path, "token")
    program = asyncio.run(programs.fetched("s3://bucket/dir/p.py", Settings()))
    assert (program.name, program.read_bytes()) == ("p.py", b"print(1)")
    assert asyncio.run(programs.listed()) == []  # nobody has uploaded it
    with pytest.raises(ConfigurationError, match="is not there"):
        asyncio.run(programs.fetched("s3://bucket/q.py", Settings()))
    assert asyncio.run(programs.fetched("file:///x/p.py", Settings())) == Path("/x/p.py")

    options = {
        "python.files": "s3://bucket/dir/a.py,/here/b.py", "python.archives": "s3://bucket/dir/data.tar.gz#data",
        "python.requirements": "s3://bucket/dir/requirements.txt#packages", "parallelism.default": "2",
    }  # fmt: skip
    fetched = asyncio.run(programs.dependencies_fetched(options, Settings()))
    first, second = fetched["python.files"].split(",")
    assert (Path(first).name, Path(first).read_bytes(), second) == ("a.py", b"print(1)", "/here/b.py")
    archive, _, target = fetched["python.archives"].partition("#")
    assert (Path(archive).name, Path(archive).exists(), target) == ("data.tar.gz", True, "data")
    requirements, _, target = fetched["python.requirements"].partition("#")
    assert (Path(requirements).name, Path(requirements).exists(), target) == ("requirements.txt", True, "packages")
    assert fetched["parallelism.default"] == "2"
    here = {"python.requirements": "requirements.txt#packages"}
    assert asyncio.run(programs.dependencies_fetched(here, Settings())) == here
    with pytest.raises(ConfigurationError, match=r"s3://bucket/q\.zip is not there"):
        asyncio.run(programs.dependencies_fetched({"python.archives": "s3://bucket/q.zip"}, Settings()))


def test_a_program_on_an_hdfs_that_nobody_knows_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    for where in ("hdfs://nameservice/p.py", "hdfs:///p.py"):
        with pytest.raises(ConfigurationError, match=r"does not say where it is .*HADOOP_CONF_DIR"):
            asyncio.run(UploadedPrograms(tmp_path, "token").fetched(where, Settings()))
