"""What a program brings along for its slots: a module, an archive with data, and packages if a list is given.

The module and the archive are made by the program itself, so that it runs anywhere. With a file of requirements each
slot runs in a virtual environment that holds them.

Run it with ``python examples/dependencies.py [REQUIREMENTS [DIRECTORY OF PACKAGES]]``.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

from firesteel.common import Types
from firesteel.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment

MODULE = "def shout(text):\n    return text.upper() + '!'\n"
WORDS = "uno dos tres"


class Translate(MapFunction[int, str]):
    """Reads the archive's file where slots find it: in their working directory, below the archive's name."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.words = Path("spanish/words.txt").read_text(encoding="utf-8").split()

    def map(self, value: int) -> str:
        from loudly import shout  # type: ignore[import-not-found] # comes with add_python_file

        return str(shout(self.words[value - 1]))


def main(folder: Path, requirements: list[str]) -> None:
    (folder / "loudly.py").write_text(MODULE, encoding="utf-8")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("words.txt", WORDS)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_python_file(str(folder / "loudly.py"))
    env.add_python_archive(str(folder / "data.zip"), "spanish")
    if requirements:
        env.set_python_requirements(*requirements)
    with env.from_sequence(1, 3).map(Translate(), Types.STRING()).execute_and_collect("Dependencies") as results:
        print(", ".join(sorted(results)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name), sys.argv[1:3])
