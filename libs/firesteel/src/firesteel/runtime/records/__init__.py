"""Records on their way: batches of rows or of columns, conversions between the two, copies and estimated sizes."""
