"""Tells the story of one seed: ``python -m tests.simulation KIND SEED`` (kinds: ``faults``, ``calm``, ...)."""

from __future__ import annotations

import sys

from tests.simulation.seeds import story_of
from tests.simulation.story import StoryError

if __name__ == "__main__":
    _, kind, seed = sys.argv
    simulated = story_of(kind, int(seed))
    try:
        simulated.run()
    except StoryError as error:
        sys.exit(str(error))
    print("\n".join(simulated.told))
