"""Records as columns: batches of rows and back, and windows of them."""
