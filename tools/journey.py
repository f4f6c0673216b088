"""Which files a job of three records enters, and how far a control message has to go: python tools/journey.py [--json].

Runs ``env.from_collection([1, 2, 3]).map(...).print()`` in a program's own cluster, with a profiler in each of its
processes. It notes the first call into each file of Firesteel, and for each control message that reaches a JobMaster's
core the functions that it has passed since it was read off the wire: the hops between the door and the decision.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

PROGRAM = """
from firesteel.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda number: number + 1).print()
env.execute("three records")
"""
PROFILER = '''
"""Python imports this module at the start of each process that has its directory on its path."""

import inspect
import os
import sys
import threading

notes = os.open(os.environ["FIRESTEEL_JOURNEY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
entered = set()


def is_product(path):
    return "/src/firesteel" in path


def on_call(frame, event, argument):
    if event != "call" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # modules and classes run theirs when read
        return
    path = frame.f_code.co_filename
    if path not in entered:
        entered.add(path)
        if is_product(path):
            os.write(notes, f"file {path}\\n".encode())
    if path.endswith("firesteel_jobmaster/core.py") and frame.f_code.co_qualname.startswith("JobMasterCore."):
        stack = []
        while frame is not None and "/firesteel/rpc/" not in frame.f_code.co_filename:
            if is_product(frame.f_code.co_filename):
                stack.append(frame.f_code.co_qualname)
            frame = frame.f_back
        if frame is not None and not any(name.startswith("JobMasterCore.") for name in stack[1:]):
            os.write(notes, ("message " + " ".join(reversed(stack)) + "\\n").encode())


sys.setprofile(on_call)
threading.setprofile(on_call)
'''


def main() -> int:
    """Print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(PROFILER)
        notes, program = Path(folder, "notes"), Path(folder, "three_records.py")
        program.write_text(PROGRAM)
        variables = {**os.environ, "PYTHONPATH": folder, "FIRESTEEL_JOURNEY": str(notes)}
        done = subprocess.run([sys.executable, str(program)], env=variables, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
            return 1
        lines = [line.split() for line in notes.read_text().splitlines()]
    files = {words[1].rpartition("/src/")[2] for words in lines if words[0] == "file"}
    messages = {words[-1].removeprefix("JobMasterCore."): words[1:] for words in lines if words[0] == "message"}
    if parsed.json:
        print(json.dumps({"files": sorted(files), "messages": messages}, indent=2))
        return 0
    print(f"{len(files)} files of Firesteel are entered by a job of three records, by package:")
    packages = Counter(file.replace("/", ".").removesuffix(".py").rsplit(".", 1)[0] for file in files)
    for package, count in packages.most_common():
        print(f"{count:7} {package}")
    print("functions from the door of a JobMaster's process to the decision in its core, by message:")
    for event, stack in sorted(messages.items()):
        print(f"{len(stack):7} {event}: {' > '.join(stack)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
