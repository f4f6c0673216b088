"""The checkpoint storage ``s3`` on a MinIO that testcontainers runs, as tests of users do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.checkpoint.storage import StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.testing import check_checkpoint_storage
from tests.servers.compose_cluster import command, own_project
from tests.servers.minio.server import BUCKET, JOB

pytestmark = pytest.mark.may_skip(reason="a machine where no Docker engine can be had, or no MinIO be built")


@pytest.fixture
def image(engine: None, program: str, tmp_path: Path) -> Iterator[str]:
    """Nothing but the program: no image can be pulled here."""
    shutil.copy(program, tmp_path / "minio")
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY minio /minio\nENTRYPOINT ["/minio"]\n')
    name = f"{own_project()}/minio:test"
    command("docker", "build", "--quiet", "--tag", name, str(tmp_path))
    yield name
    command("docker", "image", "rm", "--force", name)


def test_the_contract_is_kept(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image can't be pulled
    from testcontainers.community.minio import MinioContainer

    with MinioContainer(image) as minio:
        minio.get_client().make_bucket(BUCKET)
        container_config = minio.get_config()
        settings = {
            "execution.checkpointing.dir": f"s3://{BUCKET}/jobs",
            "s3.endpoint": f"http://{container_config['endpoint']}",
            "s3.access-key": container_config["access_key"],
            "s3.secret-key": container_config["secret_key"],
            "s3.upload.min.part.size": "5 mb",
        }
        parameters = StorageParameters(JOB, Settings(settings, "job"))
        load_checkpoint_storage(parameters).check()
        check_checkpoint_storage(lambda: load_checkpoint_storage(parameters), large=os.urandom(6 << 20))
        assert list(minio.get_client().list_objects(BUCKET, recursive=True)) == []
