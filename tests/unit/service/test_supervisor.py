"""The supervisor of a JobManager's services: restarts, its end, what it gives up."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from firesteel.service import supervisor
from firesteel.service.supervisor import OVER, REFUSED, STOPPED, Supervisor

pytestmark = pytest.mark.timeout(120)
IN_VAIN = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not pause here."""
    monkeypatch.setattr(supervisor, "_PAUSE", 0.0)


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_what_dies_is_started_again_and_the_end_of_one_ends_all_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.5)  # for the one that does not end by itself
    count = tmp_path / "count"
    dies_twice = python(
        f"import os; path = {str(count)!r}; open(path, 'a').write('x'); "
        "os.path.getsize(path) < 3 and os.kill(os.getpid(), 9)"
    )
    reason = Supervisor(
        {"stays": python(IN_VAIN), "dispatcher": dies_twice}, {}, lambda: count.exists() and count.stat().st_size == 3
    ).run()
    assert reason == OVER
    assert count.read_text() == "xxx"


def test_a_service_that_does_not_get_up_is_given_up(tmp_path: Path) -> None:
    reason = Supervisor(
        {"jobmaster": python("raise SystemExit(1)")}, {"jobmaster": tmp_path / "out"}, lambda: False
    ).run()
    assert "the jobmaster has ended 7 times" in reason


def test_a_wrong_configuration_is_not_tried_again() -> None:
    reason = Supervisor({"jobmaster": python("raise SystemExit(2)"), "other": python(IN_VAIN)}, {}, lambda: False).run()
    assert reason == f"the jobmaster {REFUSED}"


def test_a_signal_stops_all_in_order(tmp_path: Path) -> None:
    order = tmp_path / "order"
    ends = (
        "import signal, sys\n"
        f"def leave(*_): open({str(order)!r}, 'a').write(sys.argv[1]); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        f"open({str(tmp_path)!r} + '/up-' + sys.argv[1], 'w')\n"
        "signal.pause()\n"
    )
    commands = {name: [*python(ends), name] for name in ("a", "b", "c")}

    def started() -> bool:
        if len(list(tmp_path.glob("up-*"))) < 3:
            return False
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    assert Supervisor(commands, {}, lambda: False, started).run() == STOPPED
    assert order.read_text() == "cba"


def test_the_end_of_its_holder_stops_it() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe:

        def started() -> bool:
            os.close(theirs)
            return True

        assert Supervisor({"a": python(IN_VAIN)}, {}, lambda: False, started, pipe).run() == STOPPED
