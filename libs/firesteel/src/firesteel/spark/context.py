"""Makes and ends a SparkContext on a driver JVM of our own, and leaves all other Spark state of the process alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from firesteel.core.errors import FleetError
from firesteel.spark.driver import GatewayAddress

_IMPORTED = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""Java names that pyspark expects to find in its view of the JVM."""

_VARIABLES = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
"""Variables that a SparkContext leaves in ``os.environ``."""


_PLAIN = (str, int, float, bool, bytes, bytearray, list, dict, type(None))
"""Types of values that no converter of Spark SQL takes."""


class _SqlConverter:
    """One of Spark SQL's converters of arguments, which is not asked about plain values.

    Those for NumPy import NumPy, Arrow and a test framework to see whether a string is a NumPy array: that takes 0.3
    seconds of the first call to the JVM, and 40 MB (pyspark 4.3).
    """

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self.convert = converter.convert

    def can_convert(self, value: object) -> bool:
        return type(value) not in _PLAIN and bool(self._converter.can_convert(value))


def _input_converters() -> list[Any]:
    """The converters of arguments that py4j and pyspark have registered."""
    from py4j.protocol import INPUT_CONVERTER

    return [
        _SqlConverter(converter) if type(converter).__module__ == "pyspark.sql.types" else converter
        for converter in INPUT_CONVERTER
    ]


def refuse_foreign_context() -> None:
    """Refuse to start beside a SparkContext of the user's: a process can have only one.

    Raises:
        FleetError: there is one that is not ours.
    """
    module = sys.modules.get("pyspark.core.context")
    active = None if module is None else module.SparkContext._active_spark_context
    if active is not None:
        raise FleetError(
            f"This process has an active SparkContext ({active.appName!r} on {active.master!r}) and Spark allows one: "
            "stop it (spark.stop()) before Firesteel starts its own, or run one of the two in another process."
        )


class OwnContext:
    """A SparkContext together with the JVM gateway behind it. Made, used and closed on one thread.

    That must not be the main thread: there pyspark would replace the handler of SIGINT.

    Args:
        address: of the JVM's gateway.
        conf: of a new context; None to take over the one that the JVM has.
        python: the workers' interpreter.
        popen: the JVM, if it is a child of ours.

    Raises:
        FleetError: Spark refused, there is no context to take over, or another one is active in this process.
    """

    def __init__(
        self,
        address: GatewayAddress,
        conf: Mapping[str, str] | None,
        python: str,
        popen: subprocess.Popen[bytes] | None = None,
    ) -> None:
        assert threading.current_thread() is not threading.main_thread()
        from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
        from py4j.java_gateway import java_import
        from pyspark import SparkConf, SparkContext

        self._class: Any = SparkContext
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        self._path = list(sys.path)
        gateway = ClientServer(
            java_parameters=JavaParameters(port=address.port, auth_token=address.secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        gateway.proc = popen
        gateway._gateway_client.converters = _input_converters()
        for name in _IMPORTED:
            java_import(gateway.jvm, name)
        self.gateway: Any = gateway
        with self._class._lock:
            refuse_foreign_context()
            # A context that the user had and stopped has left its gateway, which is for his next one.
            self._user_gateway = (self._class._gateway, self._class._jvm)
            self._class._gateway, self._class._jvm = gateway, gateway.jvm
        try:
            if conf is None:
                java_context = _active_context(gateway)
                settings = SparkConf(_jconf=java_context.sc().conf())
            else:
                gateway.jvm.firesteel.spark.HadoopLogin.ensure()
                java_context, settings = None, SparkConf(loadDefaults=False)
                settings.setAll(list(conf.items()))
            self.spark: Any = SparkContext(conf=settings, gateway=gateway, jsc=java_context)
        except Exception as error:  # py4j and Spark raise whatever comes; the reason is told
            reason = reason_of(error)
            self._put_back()
            raise FleetError(f"Spark could not be started: {reason}") from None
        except BaseException:
            self._put_back()
            raise
        self.spark.pythonExec = python
        self.slots: Any = gateway.jvm.firesteel.spark.Slots
        """``Slots.java``."""
        self.stages: Any = gateway.jvm.firesteel.spark.Stages
        """``Stages.java``."""
        vars(self.spark._accumulatorServer)["handle_error"] = _the_driver_is_gone
        self._added_to_path = [entry for entry in sys.path if entry not in self._path]

    def is_open(self) -> bool:
        """Whether the context was not stopped; users can get it from Spark as the active context, and stop it."""
        return self.spark._jsc is not None

    def close(self, stop: bool) -> None:
        """Forget the context and its gateway.

        Args:
            stop: stop the context as well; not if the JVM is dead, or goes on for another process.
        """
        if not stop:
            self.spark._jsc = None  # else pyspark talks to the JVM, and warns if that is dead
        try:
            try:
                self.spark.stop()
            except Exception:  # the JVM died meanwhile
                self.spark._jsc = None
                self.spark.stop()
        finally:
            self._put_back()

    def _put_back(self) -> None:
        cls = self._class
        with cls._lock:
            if cls._gateway is self.gateway:
                cls._gateway, cls._jvm = self._user_gateway
        _hang_up(self.gateway)
        for entry in getattr(self, "_added_to_path", ()):
            if entry in sys.path:
                sys.path.remove(entry)
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _forget_sessions(getattr(self, "spark", None))


def _active_context(gateway: Any) -> Any:
    """The active context of the JVM, as JavaSparkContext."""
    active = getattr(getattr(gateway.jvm, "org.apache.spark.SparkContext$"), "MODULE$").getActive()
    if active.isEmpty() or active.get().isStopped():
        raise FleetError("the driver has no SparkContext any more")
    return gateway.jvm.org.apache.spark.api.java.JavaSparkContext(active.get())


def _hang_up(gateway: Any) -> None:
    """Close our connections and end py4j's thread; the JVM still listens for other processes."""
    from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER

    client = gateway._gateway_client
    client.close()
    client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)


def _forget_sessions(context: Any) -> None:
    """Remove a SparkSession that the user made on our context, so that ``getOrCreate`` does not return it later."""
    module = sys.modules.get("pyspark.sql.session")
    session = None if module is None else module.SparkSession._instantiatedSession
    if session is not None and session._sc is context:
        assert module is not None
        module.SparkSession._instantiatedSession = None


def _the_driver_is_gone(request: object, client_address: object) -> None:
    """Handle the end of the driver quietly: pyspark's accumulator server would print a traceback to stderr."""


def reason_of(error: BaseException) -> str:
    """Text of an error; for one of Java's its ``toString()``, without the stack trace, while the JVM still runs."""
    thrown = getattr(error, "java_exception", None)
    try:
        return str(error) if thrown is None else str(thrown.toString())
    except Exception:  # the JVM has gone
        return type(error).__name__
