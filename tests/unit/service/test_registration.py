"""The bond with the ResourceManager: back-off, loss, and when it is given up."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firesteel.core.errors import IllegalTransitionError
from firesteel.service.registration import (
    BondState,
    EndProcess,
    Register,
    Registration,
    RegistrationFailure,
    RegistrationSettings,
)
from tests.examples import examples

SETTINGS = RegistrationSettings()


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def epoch_ms(self) -> int:
        return 0


def pause_after(bond: Registration, clock: Clock, answer: RegistrationFailure) -> float:
    """A try that fails; how long until the next one."""
    assert bond.tick() == [Register()]
    assert bond.failed(answer, "why", in_use=False) == []
    due = bond.next_tick
    assert due is not None
    pause = due - clock.now
    clock.now = due - 0.001
    assert bond.tick() == []
    clock.now = due
    return pause


def test_no_answer_doubles_the_pause_from_100_ms_to_30_s() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    pauses = [pause_after(bond, clock, RegistrationFailure.NONE) for _ in range(11)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


def test_an_error_waits_10_s_and_a_refusal_30_s() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    assert pause_after(bond, clock, RegistrationFailure.ERROR) == pytest.approx(10.0)
    assert pause_after(bond, clock, RegistrationFailure.REFUSED) == pytest.approx(30.0)
    assert pause_after(bond, clock, RegistrationFailure.NONE) == pytest.approx(0.1)


def test_an_acceptance_begins_the_pauses_anew() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    for _ in range(4):
        pause_after(bond, clock, RegistrationFailure.NONE)
    bond.tick()
    bond.accepted("token", 10.0)
    assert (bond.is_registered, bond.token) == (True, "token")
    bond.lost("fenced")
    assert not bond.is_registered
    assert pause_after(bond, clock, RegistrationFailure.NONE) == pytest.approx(0.1)


def test_a_registration_is_given_up_after_five_minutes_with_a_reason() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    begin = clock.now
    while clock.now < begin + SETTINGS.timeout:
        pause_after(bond, clock, RegistrationFailure.REFUSED)
    assert clock.now == pytest.approx(begin + SETTINGS.timeout), "the last try is made when the time is over"
    bond.tick()
    (end,) = bond.failed(RegistrationFailure.REFUSED, "another Python", in_use=False)
    assert isinstance(end, EndProcess)
    assert "300 s" in end.cause
    assert "another Python" in end.cause
    assert bond.next_tick is None
    assert bond.tick() == []


def test_a_taskmanager_whose_slots_are_used_goes_on_trying_until_they_are_free() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    for _ in range(50):
        bond.tick()
        assert bond.failed(RegistrationFailure.NONE, "gone", in_use=True) == []
        assert bond.next_tick is not None
        clock.now = bond.next_tick
    assert clock.now > 1000.0 + SETTINGS.timeout
    bond.tick()
    assert bond.failed(RegistrationFailure.NONE, "gone", in_use=False)


def test_a_new_resourcemanager_hears_soon_of_slots_that_are_used() -> None:
    """It gives a JobMaster that follows another one no slots before all TaskManagers had time to register."""
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    bond.tick()
    bond.accepted("token", 2.0)
    bond.lost("another one leads")
    pauses = []
    for answer in (RegistrationFailure.NONE,) * 8 + (RegistrationFailure.ERROR, RegistrationFailure.REFUSED):
        bond.tick()
        assert bond.failed(answer, "why", in_use=True) == []
        assert bond.next_tick is not None
        pauses.append(bond.next_tick - clock.now)
        clock.now = bond.next_tick
    assert pauses[-4:] == pytest.approx([5.0, 5.0, 5.0, 30.0])


def test_silence_makes_it_register_again_without_waiting_for_the_heartbeat_timeout() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    bond.tick()
    bond.accepted("token", 10.0)
    for _ in range(24):
        clock.now += 1.0
        assert bond.tick() == []
    bond.heard()
    for _ in range(24):
        clock.now += 1.0
        assert bond.tick() == []
    clock.now += 1.0
    assert bond.tick() == [Register()]
    bond.accepted("another token", 10.0)
    assert bond.token == "another token"


def test_a_stall_of_the_taskmanager_is_no_silence_of_the_resourcemanager() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    bond.tick()
    bond.accepted("token", 10.0)
    clock.now += 1.0
    bond.tick()
    clock.now += 3600.0  # it was stopped
    assert bond.tick() == []
    for _ in range(23):
        clock.now += 1.0
        assert bond.tick() == []
    clock.now += 1.1
    assert bond.tick() == [Register()]


def test_a_move_that_the_table_does_not_have_raises() -> None:
    with pytest.raises(IllegalTransitionError, match="WAITING -> REGISTERED"):
        Registration(SETTINGS, Clock()).accepted("token", 10.0)


class BondMachine(RuleBasedStateMachine):
    """Any order of events: the bond never waits without an end, and never calls twice at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.bond = Registration(SETTINGS, self.clock)
        self.ended = False

    @rule(seconds=st.sampled_from([0.05, 0.5, 5.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        calling = self.bond.state is BondState.CALLING
        out = self.bond.tick()
        assert not (calling and out)
        assert bool(out) <= (self.bond.state is BondState.CALLING)

    @precondition(lambda self: self.bond.state is BondState.CALLING)
    @rule(interval=st.sampled_from([0.0, 0.2, 10.0]))
    def accepted(self, interval: float) -> None:
        self.bond.accepted("token", interval)

    @precondition(lambda self: self.bond.state is BondState.CALLING)
    @rule(answer=st.sampled_from(RegistrationFailure), in_use=st.booleans())
    def failed(self, answer: RegistrationFailure, in_use: bool) -> None:
        out = self.bond.failed(answer, "why", in_use)
        assert not (out and in_use)
        self.ended = bool(out)

    @rule()
    def lost(self) -> None:
        self.bond.lost("fenced")

    @rule()
    def heard(self) -> None:
        self.bond.heard()

    @invariant()
    def something_happens_next(self) -> None:
        waits_for_an_answer = self.bond.state is BondState.CALLING
        assert (self.bond.next_tick is None) == (waits_for_an_answer or self.ended)


TestBond = BondMachine.TestCase
TestBond.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


# -- another leader


def test_another_leader_is_not_waited_for() -> None:
    clock = Clock()
    bond = Registration(SETTINGS, clock)
    for _ in range(8):
        pause_after(bond, clock, RegistrationFailure.NONE)
    assert bond.tick() == [Register()]
    assert bond.failed(RegistrationFailure.NONE, "why", in_use=False) == []
    assert bond.tick() == [], "the pause is long by now"
    bond.leads_elsewhere("another one leads")
    assert bond.tick() == [Register()]
    bond.leads_elsewhere("yet another one leads")  # while the call to the last one is on its way
    assert bond.failed(RegistrationFailure.REFUSED, "it leads no more", in_use=False) == []
    assert bond.tick() == [Register()]
    bond.accepted("token", 10.0)
    bond.leads_elsewhere("another one leads")
    assert not bond.is_registered
    assert bond.tick() == [Register()]
