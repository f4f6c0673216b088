"""A cluster for one program, which comes from a MinIO with all that it needs."""

from __future__ import annotations

import io
import subprocess
import zipfile
from collections.abc import Iterator

import pytest

from tests.integration.processes.cluster import BIN, PATIENCE
from tests.integration.processes.test_application_mode import Home
from tests.servers.minio.server import BUCKET, MinioServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
_PROGRAM = b"""
from pathlib import Path
from firesteel.datastream import StreamExecutionEnvironment
from far_module import times

def with_data(value):
    return f"{times(value)} {Path('data/text').read_text()}"

env = StreamExecutionEnvironment.get_execution_environment()
with env.from_collection([1, 2, 3]).map(with_data).execute_and_collect() as results:
    print("results", sorted(results), flush=True)
"""


@pytest.fixture
def home(minio: MinioServer) -> Iterator[Home]:
    """A user whose configuration says where the MinIO is."""
    application_home = Home()
    try:
        config = application_home.conf / "config.yaml"
        settings = {key: text for key, text in minio.settings().items() if key.startswith("s3.")}
        config.write_text(config.read_text() + "".join(f"{key}: {text}\n" for key, text in settings.items()))
        yield application_home
    finally:
        application_home.close()


def test_a_program_and_its_files_come_from_there(minio: MinioServer, home: Home) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("text", "of the archive")
    files = {
        "program.py": _PROGRAM, "far_module.py": b"def times(i):\n    return i * 7\n", "data.zip": archive.getvalue(),
    }  # fmt: skip
    for name, content in files.items():
        minio.client().put_object(BUCKET, f"programs/{name}", io.BytesIO(content), len(content))
    where = f"s3://{BUCKET}/programs"

    def run(program: str) -> subprocess.CompletedProcess[str]:
        words = ("-pyfs", f"{where}/far_module.py", "-pyarch", f"{where}/data.zip#data", f"{where}/{program}")
        done = subprocess.run(
            [str(BIN / "firesteel"), "run-application", *words], capture_output=True, text=True,
            timeout=PATIENCE * 6, env=home.environment(), cwd=home.folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        home.logs_of(done.stderr)
        return done

    done = run("program.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results ['14 of the archive', '21 of the archive', '7 of the archive']" in done.stdout
    wrong = run("another.py")
    assert wrong.returncode == 1
    assert f"the program {where}/another.py is not there" in wrong.stderr, wrong.stdout + wrong.stderr
