"""Where network namespaces can be had, they must be; elsewhere these tests are skipped."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.servers.network.namespaces import Host, is_root, missing_tools, remove_leftovers


@pytest.fixture(scope="session")
def namespaces() -> None:
    """The tools are there, and namespaces can be made."""
    if not is_root():
        pytest.skip("only root can make network namespaces")
    packages = missing_tools()
    if packages:
        if not shutil.which("apt-get"):
            pytest.skip(f"there is no {' and no '.join(packages)}, and this is not Debian, where it could be installed")
        for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *packages]):
            done = subprocess.run(["apt-get", *command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                pytest.skip(f"{' and '.join(packages)} can't be installed: {done.stderr.strip()[-300:]}")
    remove_leftovers()
    try:
        Host("198.18.0.254").delete()
    except OSError as error:
        pytest.skip(f"this machine lets root make no network namespaces: {error}")
