"""Options of the memory of a TaskManager, of which ``firesteel.config.memory`` makes the parts, and of a JobManager."""

from __future__ import annotations

from firesteel.config.option import FLOAT, MEMORY, Option

_MIB = 1 << 20
_LONG_MAX = (1 << 63) - 1

MEMORY_PROCESS_SIZE: Option[int | None] = Option(
    "taskmanager.memory.process.size",
    MEMORY,
    None,
    "Memory of all processes of a TaskManager. Set this, or the next one, or task heap and managed memory; the rest is "
    "derived. `firesteel memory` shows the result.",
    unit="bytes",
    at_least=0,
)
MEMORY_FLINK_SIZE: Option[int | None] = Option(
    "taskmanager.memory.flink.size", MEMORY, None, "The same without JVM metaspace and overhead.", unit="bytes",
    at_least=0,
)  # fmt: skip
MEMORY_TASK_HEAP: Option[int | None] = Option(
    "taskmanager.memory.task.heap.size", MEMORY, None, "Objects of the user's functions in all slots.", unit="bytes",
    at_least=0,
)  # fmt: skip
MEMORY_MANAGED_SIZE: Option[int | None] = Option(
    "taskmanager.memory.managed.size", MEMORY, None, "Caches and buffers of state backends in all slots.", unit="bytes",
    at_least=0,
)  # fmt: skip
MEMORY_MANAGED_FRACTION = Option(
    "taskmanager.memory.managed.fraction", FLOAT, 0.4, "Managed memory, where no size is set, as a part of "
    "taskmanager.memory.flink.size.", at_least=0.0, at_most=1.0,
)  # fmt: skip
MEMORY_TASK_OFF_HEAP = Option(
    "taskmanager.memory.task.off-heap.size", MEMORY, 0, "Memory of native libraries of the user's functions.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_FRAMEWORK_HEAP = Option(
    "taskmanager.memory.framework.heap.size", MEMORY, 128 * _MIB, "Heap of the JVM of the Spark executor, with the "
    "next one.", unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_FRAMEWORK_OFF_HEAP = Option(
    "taskmanager.memory.framework.off-heap.size", MEMORY, 128 * _MIB, "See taskmanager.memory.framework.heap.size.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_NETWORK_MIN = Option(
    "taskmanager.memory.network.min", MEMORY, 64 * _MIB, "Least memory for batches in flight between slots.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_NETWORK_MAX = Option(
    "taskmanager.memory.network.max", MEMORY, _LONG_MAX, "Most memory for batches in flight between slots.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_NETWORK_FRACTION = Option(
    "taskmanager.memory.network.fraction", FLOAT, 0.1, "Memory for batches in flight as a part of "
    "taskmanager.memory.flink.size.", at_least=0.0, at_most=0.99,
)  # fmt: skip
MEMORY_METASPACE = Option(
    "taskmanager.memory.jvm-metaspace.size", MEMORY, 256 * _MIB, "Classes of the JVM of the Spark executor.",
    unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_OVERHEAD_MIN = Option(
    "taskmanager.memory.jvm-overhead.min", MEMORY, 192 * _MIB, "Least memory for all else: the TaskManager's own "
    "process, stacks and compiled code of the JVM, the daemon of the slots.", unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_OVERHEAD_MAX = Option(
    "taskmanager.memory.jvm-overhead.max", MEMORY, 1024 * _MIB, "Most memory for all else.", unit="bytes", at_least=0,
)  # fmt: skip
MEMORY_OVERHEAD_FRACTION = Option(
    "taskmanager.memory.jvm-overhead.fraction", FLOAT, 0.1, "Memory for all else as a part of "
    "taskmanager.memory.process.size.", at_least=0.0, at_most=0.99,
)  # fmt: skip
JOBMANAGER_MEMORY: Option[int] = Option(
    "jobmanager.memory.process.size", MEMORY, 1600 * _MIB, "Memory of the pod or container that has Dispatcher, "
    "ResourceManager, JobMasters, Spark's driver and, in application mode, main(), where Firesteel makes it, on "
    "Kubernetes or YARN. It has no effect elsewhere.", unit="bytes", at_least=_MIB,
)  # fmt: skip
