from __future__ import annotations

import sys

import pytest

from firesteel.service.versions import differences, own_versions


def test_a_node_names_all_that_has_to_be_the_same() -> None:
    own = own_versions()
    assert set(own) == {"firesteel", "python", "pyspark"}
    assert own["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert differences(own, own_versions()) == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"python": "3.11.9", "pyspark": "4.3.0"}, []),
        ({"python": "3.12.0", "pyspark": "4.3.0"}, ["python 3.12 instead of 3.11"]),
        ({"python": "3.11"}, ["pyspark (it does not say which) instead of 4.3.0"]),
    ],
)
def test_differences_of_versions_are_named(other: dict[str, str], expected: list[str]) -> None:
    assert differences({"python": "3.11.2", "pyspark": "4.3.0"}, other) == expected
