"""Tables, views and functions by their names."""
