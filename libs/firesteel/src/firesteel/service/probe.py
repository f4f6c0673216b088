"""``python -m firesteel.service.probe URL`` ends with 0 if the address answers 200: for health checks of containers."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

_SECONDS = 20.0


def main(arguments: list[str]) -> int:
    """Ask once; says on stderr what is wrong."""
    if len(arguments) != 1 or not arguments[0].startswith("http://"):
        print("usage: python -m firesteel.service.probe http://HOST:PORT/ready", file=sys.stderr)
        return 2
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(arguments[0], timeout=_SECONDS) as answer:
            return 0 if answer.status == 200 else 1
    except (OSError, ValueError) as error:
        detail = error.read(300).decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
        print(f"{arguments[0]}: {error} {detail}".rstrip(), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
