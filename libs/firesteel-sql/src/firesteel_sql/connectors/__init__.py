"""What reads and writes the rows of tables, by the option ``connector``."""
