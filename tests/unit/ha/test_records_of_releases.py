"""What each release has kept of jobs (``tests/fixtures/high_availability/release-*``) is read by all later ones.

When this fails, a format of records or job graphs has changed. Don't make the fixture anew: clusters have such records
when they are upgraded. Give the format a new version, read both, and add a fixture of the release that writes it::

    python -c 'from tests.fixtures.high_availability.make import make; make("release-<version>")'
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from firesteel.graph.job_graph import JobGraph
from firesteel.ha.retrieval import DISPATCHER, of_job
from firesteel.runtime.slot.user_code import load_chain
from tests.fixtures.high_availability.make import (
    APPLICATION,
    ATTEMPTS,
    CHECKPOINTS,
    END,
    ENDED,
    GRAPH,
    HERE,
    RECORDED_END,
    RUNNING,
    lead,
    services_of,
)

RELEASES = sorted(HERE.glob("release-*"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "cluster"))


def test_there_is_one() -> None:
    assert RELEASES


def test_jobs_go_on_and_ended_ones_are_known(release: Path) -> None:
    services = services_of(release)
    leadership = lead(services, DISPATCHER)
    store = services.job_store(leadership)
    contents = store.open()
    (job,) = contents.jobs
    assert (contents.unreadable, contents.ends, contents.application) == ((), (END,), APPLICATION)
    assert (job.fingerprint, job.submitted_ms, job.cancel_wanted) == ("fingerprint of a", 1, False)
    assert job.jobmaster == ("http://jobmaster:6124", "token-1")
    assert leadership.epoch == 2
    assert contents.term > 1000
    assert job.graph == JobGraph.from_plain(json.loads((release / GRAPH).read_text()))
    assert all(store.blob(name) for name in job.graph.blobs)
    assert services.recorded_end(ENDED) == RECORDED_END
    services.close()


def test_jobs_go_on_from_their_checkpoints(release: Path) -> None:
    services = services_of(release)
    leadership = lead(services, of_job(RUNNING))
    store = services.completed_checkpoints(RUNNING, leadership)
    assert (leadership.epoch, leadership.attempts) == (2, ATTEMPTS)
    assert (store.all(), store.damaged) == (list(CHECKPOINTS), ())
    assert store.next_id() == 4
    services.close()


def test_graphs_that_clients_send_are_read_as_they_are(release: Path) -> None:
    plain = json.loads((release / GRAPH).read_text())
    assert json.loads(json.dumps(JobGraph.from_plain(plain).to_plain())) == plain


def test_chains_are_unpickled_by_the_python_that_has_pickled_them(release: Path) -> None:
    services = services_of(release)
    store = services.job_store(lead(services, DISPATCHER))
    (job,) = store.open().jobs
    if job.graph.versions["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]:
        for vertex in job.graph.vertices:
            blob = store.blob(vertex.chain)
            assert blob is not None
            operators = load_chain(blob.read_bytes()).operators
            assert [operator.id for operator in operators] == [operator.id for operator in vertex.operators]
    services.close()
