"""The committed class files are what the compiler makes of the committed sources."""

from __future__ import annotations

import pytest

from firesteel.spark.own_classes import JAR
from tools.spark_jar import (
    COMPILER_ATTRIBUTE,
    MANIFEST,
    CompileError,
    attributes,
    compile_classes,
    compiler_version,
    contents,
    differences,
    read_jar,
)


@pytest.mark.long  # that the jar is of these sources, unit/spark/test_own_classes.py shows
@pytest.mark.may_skip(reason="there is no JDK of the release that made the jar")
def test_the_sources_compile_to_the_same_class_files() -> None:
    compiler = attributes(read_jar(JAR)[MANIFEST])[COMPILER_ATTRIBUTE]
    try:
        compiler_here = compiler_version()
    except CompileError as error:
        pytest.skip(str(error))
    if compiler_here != compiler:
        pytest.skip(
            f"javac is {compiler_here}; the jar was made with {compiler}, and each makes slightly other class files"
        )
    assert differences(contents(compile_classes()), read_jar(JAR)) == [], "run: ./dev run python tools/spark_jar.py"
