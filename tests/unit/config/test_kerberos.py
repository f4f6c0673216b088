"""Which keytab counts on a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.config.derived import KEYTAB_VARIABLE, login_keytab


def test_a_process_that_was_given_a_keytab_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, of_variable = tmp_path / "named", tmp_path / "given"
    settings = Settings({"security.kerberos.login.keytab": str(named)})
    assert login_keytab(settings) == str(named), "whoever uses it says that it is not there"
    monkeypatch.setenv(KEYTAB_VARIABLE, f"FILE:{of_variable}")
    assert login_keytab(settings) == str(named)
    of_variable.touch()
    assert login_keytab(settings) == str(of_variable)
    named.touch()
    assert login_keytab(settings) == str(of_variable), "the named one may go at any time"
    assert login_keytab(Settings()) is None, "nobody has asked for one"
