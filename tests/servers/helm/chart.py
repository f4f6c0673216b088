"""The chart, and how helm is called for tests; ``python -m tests.servers.helm.chart`` writes the golden files anew."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "firesteel"
ENSURE = Path(__file__).parent / "ensure-helm.sh"
CASES = Path(__file__).parent / "cases"
IMPOSSIBLE = 3


def names() -> list[str]:
    """Of the cases: sets of values, each with what the chart makes of it."""
    return sorted(path.stem for path in CASES.glob("*.yaml") if not path.stem.endswith(".golden"))


def golden(name: str) -> Path:
    """What is expected of a case."""
    return CASES / f"{name}.golden.yaml"


def template(programs: Path, *values: Path | str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """``helm template`` of the chart: files of values, or ``key=value``."""
    words = [str(programs / "helm"), "template", "demo", str(CHART), "--namespace", "streams"]
    for value in values:
        words += ["--values", str(value)] if isinstance(value, Path) else ["--set-json", value]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def rendered(programs: Path, name: str) -> str:
    """A case's objects, without what is drawn by chance."""
    text = template(programs, CASES / f"{name}.yaml").stdout
    return re.sub(r"^(  (?:cluster-secret|rest-token): ).+$", r"\1<drawn>", text, flags=re.MULTILINE)


def objects(text: str) -> list[dict[str, Any]]:
    """What stands in a stream of YAML."""
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def main() -> None:
    """Write the golden files."""
    done = subprocess.run(["sh", str(ENSURE)], check=True, stdout=subprocess.PIPE, text=True)
    for name in names():
        golden(name).write_text(rendered(Path(done.stdout.strip()), name))


if __name__ == "__main__":
    main()
