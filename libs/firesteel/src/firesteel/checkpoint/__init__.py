"""What checkpoints are made of, and where they are kept. Plain data: nothing of the user's is unpickled here."""
