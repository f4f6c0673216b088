from __future__ import annotations

from typing import Any

import pytest

from firesteel.datastream import MemorySize, SlotSharingGroup


def test_memory_sizes() -> None:
    size = MemorySize.of_mebi_bytes(3)
    assert (size.get_bytes(), size.get_kibi_bytes(), size.get_mebi_bytes()) == (3 << 20, 3072, 3)
    assert (size.get_gibi_bytes(), MemorySize(5 << 40).get_tebi_bytes(), MemorySize().get_bytes()) == (0, 5, 0)
    assert size == MemorySize(3 << 20)
    assert hash(size) == hash(MemorySize(3 << 20))
    assert MemorySize(1) < size
    assert str(size) == "3145728 bytes"
    with pytest.raises(ValueError, match="not -1"):
        MemorySize(-1)


def test_a_group_by_name() -> None:
    group = SlotSharingGroup.builder("g").build()
    assert (group.get_name(), group.has_resources, group.get_cpu_cores()) == ("g", False, None)
    assert group == SlotSharingGroup.builder("g").build()
    assert group != SlotSharingGroup.builder("h").build()


def test_a_group_with_resources() -> None:
    group = (
        SlotSharingGroup.builder("g")
        .set_cpu_cores(1)
        .set_task_heap_memory_mb(100)
        .set_task_off_heap_memory_mb(200)
        .set_managed_memory_mb(300)
        .set_external_resource("gpu", 1)
        .build()
    )
    assert group.has_resources
    assert (group.get_cpu_cores(), group.get_external_resources()) == (1.0, {"gpu": 1.0})
    sizes = (group.get_task_heap_memory(), group.get_task_off_heap_memory(), group.get_managed_memory())
    assert sizes == (MemorySize(100 << 20), MemorySize(200 << 20), MemorySize(300 << 20))


@pytest.mark.parametrize(
    ("method", "value"),
    [("set_managed_memory_mb", 1), ("set_task_heap_memory_mb", 1), ("set_cpu_cores", 1)],
)
def test_cores_and_heap_go_together(method: str, value: Any) -> None:
    builder = getattr(SlotSharingGroup.builder("g"), method)(value)
    with pytest.raises(ValueError, match="both its CPU cores and its task heap memory"):
        builder.build()


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="is empty"):
        SlotSharingGroup.builder("")
    with pytest.raises(TypeError, match="is a str, not int"):
        SlotSharingGroup.builder(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be positive, not 0"):
        SlotSharingGroup.builder("g").set_cpu_cores(0)
    with pytest.raises(ValueError, match="heap memory of group 'g' must be positive"):
        SlotSharingGroup.builder("g").set_task_heap_memory_mb(0)
