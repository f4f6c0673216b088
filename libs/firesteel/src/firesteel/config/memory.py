"""The memory of a TaskManager, by Flink's model: one total, cut into named parts.

Three ways to configure it, as in Flink: the total of the process (``taskmanager.memory.process.size``), the total
without what the JVM takes for itself (``taskmanager.memory.flink.size``), or task heap and managed memory
(``taskmanager.memory.task.heap.size`` and ``taskmanager.memory.managed.size``). The rest is derived.

Where Flink has one JVM, a TaskManager here is several processes, so the parts mean:

* task heap, task off-heap, network and managed memory: the slot processes. Each slot gets an equal share, and its
  process is measured against it.
* framework heap and off-heap, metaspace and overhead: the TaskManager itself, the JVM of its Spark executor and the
  daemon that forks the slots.
"""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.config import options, values
from firesteel.config.option import Option
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

__all__ = ["TaskManagerMemory", "has_memory_options", "taskmanager_memory"]

_TOTALS = (options.MEMORY_PROCESS_SIZE, options.MEMORY_FLINK_SIZE)


@dataclass(frozen=True)
class TaskManagerMemory:
    """All parts in bytes; their sum is the size of all processes of a TaskManager."""

    framework_heap: int
    framework_off_heap: int
    task_heap: int
    task_off_heap: int
    network: int
    managed: int
    metaspace: int
    overhead: int

    @property
    def flink_size(self) -> int:
        """Everything but metaspace and overhead."""
        return self.framework_heap + self.framework_off_heap + self.slots_size

    @property
    def slots_size(self) -> int:
        """What all slot processes together may use."""
        return self.task_heap + self.task_off_heap + self.network + self.managed

    @property
    def process_size(self) -> int:
        return self.flink_size + self.metaspace + self.overhead

    @property
    def executor_heap(self) -> int:
        """Bytes of heap for the JVM of the Spark executor, which carries no records."""
        return self.framework_heap + self.framework_off_heap

    def slot_size(self, slots: int) -> int:
        """What each of so many slot processes may use."""
        return self.slots_size // slots

    def to_rest(self) -> dict[str, int]:
        """``memoryConfiguration`` of Flink's REST API."""
        return {
            "frameworkHeap": self.framework_heap,
            "taskHeap": self.task_heap,
            "frameworkOffHeap": self.framework_off_heap,
            "taskOffHeap": self.task_off_heap,
            "networkMemory": self.network,
            "managedMemory": self.managed,
            "jvmMetaspace": self.metaspace,
            "jvmOverhead": self.overhead,
            "totalFlinkMemory": self.flink_size,
            "totalProcessMemory": self.process_size,
        }

    def table(self, slots: int) -> str:
        """All parts for people, as they stand in the log of a TaskManager at its start."""
        rows = [
            ("Total Process Memory", self.process_size, 0),
            ("Total Flink Memory", self.flink_size, 1),
            ("Framework Heap", self.framework_heap, 2),
            ("Framework Off-Heap", self.framework_off_heap, 2),
            (f"Slots ({slots} x {_megabytes(self.slot_size(slots))})", self.slots_size, 2),
            ("Task Heap", self.task_heap, 3),
            ("Task Off-Heap", self.task_off_heap, 3),
            ("Network", self.network, 3),
            ("Managed", self.managed, 3),
            ("JVM Metaspace", self.metaspace, 1),
            ("JVM Overhead", self.overhead, 1),
        ]
        return "\n".join(f"{'  ' * depth + name + ':':44}{_megabytes(size):>14}" for name, size, depth in rows)


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def has_memory_options(settings: Settings) -> bool:
    """Whether the size of a TaskManager is configured in one of the three ways."""
    return any(settings.is_set(option) for option in _TOTALS) or _is_fine_grained(settings)


def _is_fine_grained(settings: Settings) -> bool:
    return settings.is_set(options.MEMORY_TASK_HEAP) and settings.is_set(options.MEMORY_MANAGED_SIZE)


def taskmanager_memory(settings: Settings) -> TaskManagerMemory:
    """Derive all parts.

    Raises:
        ConfigurationError: no way or a contradictory one is configured; the message names options and sizes.
    """
    if not has_memory_options(settings):
        raise ConfigurationError(
            "The memory of the TaskManager is not configured. Set one of: taskmanager.memory.process.size (everything; "
            "Flink's own example is 1728m), taskmanager.memory.flink.size (without what the JVM takes for itself), or "
            "both taskmanager.memory.task.heap.size and taskmanager.memory.managed.size."
        )
    return _Calculator(settings).derive()


class _Calculator:
    """Derives all parts from those that are configured.

    Parts that are set exactly come first; network memory and overhead, which are fractions of a total between bounds,
    take what is left of a total that is set too, and only then are checked against their bounds.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        get = settings.get
        self._framework_heap = get(options.MEMORY_FRAMEWORK_HEAP)
        self._framework_off_heap = get(options.MEMORY_FRAMEWORK_OFF_HEAP)
        self._task_off_heap = get(options.MEMORY_TASK_OFF_HEAP)
        self._task_heap = get(options.MEMORY_TASK_HEAP)
        self._managed = get(options.MEMORY_MANAGED_SIZE)
        self._metaspace = get(options.MEMORY_METASPACE)
        self._flink_size = get(options.MEMORY_FLINK_SIZE)
        self._process_size = get(options.MEMORY_PROCESS_SIZE)
        self._network = _Range(
            settings, "network", options.MEMORY_NETWORK_MIN, options.MEMORY_NETWORK_MAX, options.MEMORY_NETWORK_FRACTION
        )
        self._overhead = _Range(
            settings,
            "JVM overhead",
            options.MEMORY_OVERHEAD_MIN,
            options.MEMORY_OVERHEAD_MAX,
            options.MEMORY_OVERHEAD_FRACTION,
        )

    def derive(self) -> TaskManagerMemory:
        # 1. Flink memory, by the first of the three ways that is configured
        if self._task_heap is not None and self._managed is not None:
            flink = self._from_heap_and_managed(self._task_heap, self._managed)
        elif self._flink_size is not None:
            flink = self._from_flink_size(self._flink_size, "taskmanager.memory.flink.size")
        else:
            # from the outside in: what metaspace and overhead leave of the process is Flink memory
            assert self._process_size is not None
            overhead = self._overhead.of(self._process_size)
            flink_size = self._process_size - self._metaspace - overhead
            if flink_size <= 0:
                raise ConfigurationError(
                    f"taskmanager.memory.process.size = {values.show_memory(self._process_size)} does not cover JVM "
                    f"metaspace ({values.show_memory(self._metaspace)}) and overhead ({_megabytes(overhead)})."
                )
            flink = self._from_flink_size(flink_size, "what taskmanager.memory.process.size leaves for Flink memory")
            return self._with_jvm_parts(flink, overhead)
        # 2. the JVM's parts on top: without a total of the process the overhead is a fraction of it, else the remainder
        total = sum(flink.values())
        if self._process_size is None:
            return self._with_jvm_parts(flink, self._overhead.on_top_of(total + self._metaspace))
        overhead = self._process_size - total - self._metaspace
        if overhead < 0:
            raise ConfigurationError(
                f"The parts are larger than the whole: Flink memory ({_megabytes(total)}) and JVM metaspace "
                f"({_megabytes(self._metaspace)}) exceed taskmanager.memory.process.size = "
                f"{values.show_memory(self._process_size)}."
            )
        self._overhead.check(overhead, self._process_size)
        return self._with_jvm_parts(flink, overhead)

    def _with_jvm_parts(self, flink: dict[str, int], overhead: int) -> TaskManagerMemory:
        return TaskManagerMemory(**flink, metaspace=self._metaspace, overhead=overhead)

    def _from_heap_and_managed(self, task_heap: int, managed: int) -> dict[str, int]:
        without_network = self._fixed() + task_heap + managed
        if self._flink_size is None:
            network = self._network.on_top_of(without_network)
        else:
            network = self._flink_size - without_network
            if network < 0:
                raise ConfigurationError(
                    "The parts are larger than the whole: framework memory, task heap, task off-heap and managed "
                    f"memory ({_megabytes(without_network)}) exceed taskmanager.memory.flink.size = "
                    f"{values.show_memory(self._flink_size)}."
                )
            self._network.check(network, self._flink_size)
        return self._parts(task_heap, network, managed)

    def _from_flink_size(self, total: int, name: str) -> dict[str, int]:
        network = self._network.of(total)
        if self._task_heap is not None:
            managed = total - self._fixed() - self._task_heap - network
            self._covers(managed, total, name, "framework memory, task heap, task off-heap and network memory")
            return self._parts(self._task_heap, network, managed)
        share = int(total * self._settings.get(options.MEMORY_MANAGED_FRACTION))
        managed = share if self._managed is None else self._managed
        task_heap = total - self._fixed() - managed - network
        self._covers(task_heap, total, name, "framework memory, task off-heap, managed and network memory")
        return self._parts(task_heap, network, managed)

    @staticmethod
    def _covers(remainder: int, total: int, name: str, parts: str) -> None:
        if remainder < 0:
            raise ConfigurationError(
                f"The parts are larger than the whole: {parts} together are {_megabytes(total - remainder)}, "
                f"and {name} is {_megabytes(total)}."
            )

    def _fixed(self) -> int:
        return self._framework_heap + self._framework_off_heap + self._task_off_heap

    def _parts(self, task_heap: int, network: int, managed: int) -> dict[str, int]:
        return {
            "framework_heap": self._framework_heap,
            "framework_off_heap": self._framework_off_heap,
            "task_heap": task_heap,
            "task_off_heap": self._task_off_heap,
            "network": network,
            "managed": managed,
        }


class _Range:
    """A part that is a fraction of a total within bounds."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        least: Option[int],
        most: Option[int],
        fraction: Option[float],
    ) -> None:
        self._name, self._keys = name, (least.key, most.key, fraction.key)
        self._least, self._most, self._fraction = settings.get(least), settings.get(most), settings.get(fraction)
        self._fraction_is_set = settings.is_set(fraction)
        if self._least > self._most:
            raise ConfigurationError(
                f"{least.key} ({values.show_memory(self._least)}) is larger than {most.key} "
                f"({values.show_memory(self._most)})."
            )

    def of(self, total: int) -> int:
        """The size of this part, given the total that includes it."""
        return self._clamp(int(total * self._fraction))

    def on_top_of(self, other_parts: int) -> int:
        """The size of this part, given the sum of all others: its fraction of the total with itself included."""
        return self._clamp(int(other_parts * self._fraction / (1 - self._fraction)))

    def check(self, size: int, total: int) -> None:
        """Check a size that follows from other options against this part's bounds and fraction.

        Raises:
            ConfigurationError: it is out of bounds, or the fraction was set and says another size.
        """
        least, most, fraction = self._keys
        if not self._least <= size <= self._most:
            raise ConfigurationError(
                f"The sizes that are configured leave {_megabytes(size)} for {self._name} memory; it has to be between "
                f"{values.show_memory(self._least)} ({least}) and {values.show_memory(self._most)} ({most})."
            )
        if self._fraction_is_set and size != self.of(total):
            raise ConfigurationError(
                f"The sizes that are configured leave {_megabytes(size)} for {self._name} memory, and {fraction} = "
                f"{self._fraction:g} asks for {_megabytes(self.of(total))}: leave one of them out."
            )

    def _clamp(self, size: int) -> int:
        return max(self._least, min(size, self._most))
