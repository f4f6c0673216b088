"""Programs of a session's jobs, as the operator reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel_operator.specs import SpecError
from firesteel_operator.worlds import read_program


def test_a_program_is_read_in_the_operators_pod(tmp_path: Path) -> None:
    program = tmp_path / "counts.py"
    program.write_text("env.execute()")
    assert read_program(f"local://{program}") == ("counts.py", b"env.execute()")


@pytest.mark.parametrize(
    "uri",
    [
        "local:///var/run/secrets/kubernetes.io/serviceaccount/token",
        "/etc/passwd",
        "http://169.254.169.254/latest/meta-data?name=counts.py",
        "local:///opt/",
    ],
)
def test_nothing_else_is_read_for_users_who_make_objects(uri: str) -> None:
    with pytest.raises(SpecError, match=r"is no program: it has to end with \.py, \.zip, \.whl"):
        read_program(uri)


def test_other_schemes_are_refused() -> None:
    with pytest.raises(SpecError, match=r"neither http\(s\):// nor local://"):
        read_program("s3://programs/counts.py")
