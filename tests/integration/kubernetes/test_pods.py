"""What a container of a pod does first, by the shell that it has."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

from firesteel_kubernetes.pods import CONFIGURATION, GIVEN, PREPARE


def test_a_container_that_starts_again_has_the_configuration_of_now(tmp_path: Path) -> None:
    mounted, own = tmp_path / "given", tmp_path / "run" / "conf"
    mounted.mkdir()
    command = PREPARE.replace(GIVEN, str(mounted)).replace(CONFIGURATION, str(own))
    for text in ("first", "second"):
        (mounted / "config.yaml").unlink(missing_ok=True)
        (mounted / "config.yaml").write_text(text)
        (mounted / "config.yaml").chmod(0o440)
        subprocess.run(["/bin/sh", "-c", command], check=True)
        (file,) = own.iterdir()
        assert file.read_text() == text
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, "it is for its user alone"
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        (own / "left").touch()
