"""Images for containerd that are made here: of one static program, without Docker and without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path


def image_of_program(archive: Path, name: str, program: Path, user: str = "65532:65532") -> None:
    """A docker-archive with nothing in it but a static program, its entry point.

    Args:
        archive: to write.
        name: of the image, with its tag.
        program: to put in.
        user: it runs as.
    """
    target = f"/{program.name.split('-')[0]}"
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as file:
        for directory, mode in (("tmp", 0o1777), ("data", 0o1777)):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            file.addfile(entry)
        entry = tarfile.TarInfo(target[1:])
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as content:
            file.addfile(entry, content)
    digest = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [target], "User": user, "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
        "history": [{"created_by": "a test of Firesteel"}],
    }
    config = json.dumps(settings).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": named, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as file:
        for path, data in ((named, config), ("layer.tar", layer.getvalue()), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
