"""The slowest live member of a group is what its sources hear of."""

from __future__ import annotations

from firesteel_jobmaster.sources import MAX_WATERMARK, AlignmentGroups


def test_the_slowest_live_member_counts() -> None:
    ended: set[str] = set()
    groups = AlignmentGroups(lambda execution: execution not in ended)
    assert groups.report("g", "one", 100) == 100
    assert groups.report("g", "two", 50) == 50
    assert groups.report("other", "three", 7) == 7, "groups do not wait for each other"
    assert groups.report("g", "two", 300) == 100
    assert groups.report("g", "one", MAX_WATERMARK) == 300, "an idle one holds back nobody"
    assert groups.report("g", "one", 200) == 200
    ended.add("one")
    assert groups.report("g", "two", 400) == 400
    ended.add("two")
    assert groups.report("g", "two", 500) == MAX_WATERMARK
