"""``SlotSharingGroup``: operators of one group share slots. PyFlink's builder."""

from __future__ import annotations

__all__ = ["MemorySize", "SlotSharingGroup"]


class MemorySize:
    """A number of bytes.

    Raises:
        ValueError: the number is negative.

    Examples:
        ```python
        from firesteel.datastream import MemorySize

        print(MemorySize.of_mebi_bytes(64).get_bytes())
        ```

        ```text
        67108864
        ```
    """

    def __init__(self, bytes_size: int | None = None) -> None:
        size = 0 if bytes_size is None else bytes_size
        if size < 0:
            raise ValueError(f"a memory size is zero or more bytes, not {size}")
        self._bytes = size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Makes a size of so many MiB."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Returns the number of bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Returns the size in whole KiB."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        """Returns the size in whole MiB."""
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        """Returns the size in whole GiB."""
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        """Returns the size in whole TiB."""
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return self._bytes == other._bytes if isinstance(other, MemorySize) else NotImplemented

    def __lt__(self, other: MemorySize) -> bool:
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __str__(self) -> str:
        return f"{self._bytes} bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self._bytes})"


class SlotSharingGroup:
    """A name and, if given, the resources of one slot; made by ``SlotSharingGroup.builder(name)``.

    Examples:
        ```python
        from firesteel.datastream import SlotSharingGroup

        heavy = SlotSharingGroup("heavy")  # stream.map(...).slot_sharing_group(heavy)
        print(heavy.get_name())
        ```

        ```text
        heavy
        ```
    """

    def __init__(
        self,
        name: str,
        cpu_cores: float | None = None,
        task_heap_memory: MemorySize | None = None,
        task_off_heap_memory: MemorySize | None = None,
        managed_memory: MemorySize | None = None,
        external_resources: dict[str, float] | None = None,
    ) -> None:
        self._name = name
        self._cpu_cores = cpu_cores
        self._task_heap_memory = task_heap_memory
        self._task_off_heap_memory = task_off_heap_memory
        self._managed_memory = managed_memory
        self._external_resources = dict(external_resources or {})

    def get_name(self) -> str:
        """Returns the name of the group."""
        return self._name

    def get_cpu_cores(self) -> float | None:
        """Returns the number of cores, None if not given."""
        return self._cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Returns the heap memory of tasks, None if not given."""
        return self._task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Returns the off-heap memory of tasks, None if not given."""
        return self._task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Returns the managed memory, None if not given."""
        return self._managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Returns other resources by name."""
        return dict(self._external_resources)

    @property
    def has_resources(self) -> bool:
        """Whether any resource was given."""
        return bool(
            self._cpu_cores is not None
            or self._task_heap_memory is not None
            or self._task_off_heap_memory is not None
            or self._managed_memory is not None
            or self._external_resources
        )

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, SlotSharingGroup) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"SlotSharingGroup({self._name!r})"

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Starts a group of this name.

        Raises:
            ValueError: the name is empty.
        """
        return SlotSharingGroup.Builder(name)

    class Builder:
        """Collects the resources of one slot. CPU cores and task heap memory go together, as in Flink."""

        def __init__(self, name: str) -> None:
            if not isinstance(name, str):
                raise TypeError(f"the name of a slot sharing group is a str, not {type(name).__name__}")
            if not name:
                raise ValueError("the name of a slot sharing group is empty")
            self._name = name
            self._cpu_cores: float | None = None
            self._task_heap_memory: MemorySize | None = None
            self._task_off_heap_memory: MemorySize | None = None
            self._managed_memory: MemorySize | None = None
            self._external_resources: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Sets the number of cores.

            Raises:
                ValueError: not positive.
            """
            if cpu_cores <= 0:
                raise ValueError(f"the CPU cores of group {self._name!r} must be positive, not {cpu_cores}")
            self._cpu_cores = float(cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Sets the heap memory of tasks.

            Raises:
                ValueError: zero.
            """
            if not task_heap_memory.get_bytes():
                raise ValueError(f"the task heap memory of group {self._name!r} must be positive")
            self._task_heap_memory = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Sets the heap memory of tasks in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Sets the off-heap memory of tasks."""
            self._task_off_heap_memory = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Sets the off-heap memory of tasks in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Sets the managed memory."""
            self._managed_memory = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Sets the managed memory in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Adds another resource, such as ``gpu``."""
            self._external_resources[name] = float(value)
            return self

        def build(self) -> SlotSharingGroup:
            """Returns the group.

            Raises:
                ValueError: a resource was given, but not both CPU cores and task heap memory.
            """
            group = SlotSharingGroup(
                self._name,
                self._cpu_cores,
                self._task_heap_memory,
                self._task_off_heap_memory,
                self._managed_memory,
                self._external_resources,
            )
            if group.has_resources and (self._cpu_cores is None or self._task_heap_memory is None):
                raise ValueError(
                    f"group {self._name!r} names resources: then both its CPU cores and its task heap memory are needed"
                )
            return group
