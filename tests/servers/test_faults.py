"""Containers that crash, stand still or are cut off while a job runs in both slots."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.servers.compose_cluster import SERVICES, ComposeCluster, Container, until
from tests.servers.conftest import HEARTBEAT_TIMEOUT, SLOTS
from tests.servers.endless import Endless, run_another

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.may_skip(reason="a machine where no Docker engine can be had, or whose root one is not"),
    pytest.mark.usefixtures("root"),
]
SHORT = HEARTBEAT_TIMEOUT / 4
LONG = HEARTBEAT_TIMEOUT * 1.5


@pytest.mark.parametrize(
    ("end", "service"),
    [
        pytest.param(Container.crash, "dispatcher", id="crashes-dispatcher"),
        pytest.param(Container.restart, "resourcemanager", id="is-restarted-resourcemanager"),
        pytest.param(Container.crash, "resourcemanager", id="crashes-resourcemanager", marks=pytest.mark.long),
        pytest.param(Container.restart, "dispatcher", id="is-restarted-dispatcher", marks=pytest.mark.long),
    ],
)
def test_the_job_goes_on_when_a_coordinator_crashes_or_is_restarted(
    cluster: ComposeCluster, service: str, end: Callable[[Container], None]
) -> None:
    job = Endless(cluster)
    end(cluster.the(service))
    assert job.taskmanager.slots() == job.slots
    cluster.wait_slots(SLOTS, available=0)
    job.goes_on()
    cluster.calm(SLOTS)
    assert job.now()["state"] == "CANCELED"
    run_another(cluster)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(Container.crash, id="crashes"),
        pytest.param(Container.restart, id="is-restarted", marks=pytest.mark.long),
    ],
)
def test_the_job_begins_anew_when_its_jobmaster_crashes_or_is_restarted_and_says_so(
    cluster: ComposeCluster, end: Callable[[Container], None]
) -> None:
    job = Endless(cluster)
    end(cluster.the("jobmaster"))
    job.begins_anew("JobMaster")
    cluster.calm(SLOTS)
    assert job.now()["state"] == "CANCELED"
    run_another(cluster)


def test_the_job_fails_with_its_taskmanager_and_says_so(cluster: ComposeCluster) -> None:
    job = Endless(cluster)
    job.taskmanager.crash()
    job.fails("TaskManager")
    cluster.calm(SLOTS)
    run_another(cluster)


def test_the_job_goes_on_when_one_service_after_the_other_stands_still_or_is_cut_off_for_a_moment(
    cluster: ComposeCluster,
) -> None:
    job = Endless(cluster)
    for service in SERVICES:
        with cluster.the(service).paused():
            time.sleep(SHORT)
        job.goes_on()
    with job.taskmanager.cut_off():
        time.sleep(SHORT)
    job.goes_on()
    with cluster.the("dispatcher").paused():
        time.sleep(LONG)
    job.goes_on()


def test_slots_go_on_while_the_resourcemanager_stands_still_for_long(cluster: ComposeCluster) -> None:
    job = Endless(cluster)
    with cluster.the("resourcemanager").paused():
        time.sleep(LONG)
        job.goes_on()
    cluster.wait_slots(SLOTS, available=0)
    job.goes_on()
    cluster.calm(SLOTS)
    assert job.now()["state"] == "CANCELED"
    run_another(cluster)


def test_slots_of_a_jobmaster_that_stands_still_are_freed_and_another_takes_over(cluster: ComposeCluster) -> None:
    job = Endless(cluster)
    with cluster.the("jobmaster").paused():
        until(lambda: not job.taskmanager.slots(), "its slots end")
        cluster.wait_slots(SLOTS)
        time.sleep(HEARTBEAT_TIMEOUT)  # the Dispatcher gives it up, too; else it fails its job when it wakes up
    job.begins_anew("JobMaster")
    cluster.calm(SLOTS)
    assert job.now()["state"] == "CANCELED"
    run_another(cluster)


def test_a_taskmanager_that_stands_still_is_given_up_and_comes_back(cluster: ComposeCluster) -> None:
    job = Endless(cluster)
    with job.taskmanager.paused():
        job.fails("TaskManager", "gave no sign of life")
    until(lambda: not job.taskmanager.slots(), "its slots end")
    cluster.calm(SLOTS)
    run_another(cluster)


@pytest.mark.long  # between hosts of their own, at each run: network/test_partitions.py
def test_both_sides_of_a_cut_give_up_and_meet_again(cluster: ComposeCluster) -> None:
    job = Endless(cluster)
    with job.taskmanager.cut_off():
        job.fails("TaskManager", "gave no sign of life")
        until(lambda: not job.taskmanager.slots(), "the TaskManager ends the slots by itself")
    cluster.calm(SLOTS)
    run_another(cluster)
