"""Tells the story of one seed: ``python -m tests.simulation KIND SEED`` (kinds: ``faults``, ``calm``, ...)."""

from __future__ import annotations

import sys

from tests.simulation.story import Story, StoryError

if __name__ == "__main__":
    _, kind, seed = sys.argv
    told = Story(int(seed), kind)
    try:
        told.run()
    except StoryError as error:
        sys.exit(str(error))
    print("\n".join(told.world.story))
