"""What computes relations that remember rows, in slots: changes of tables in, changes of tables out."""
