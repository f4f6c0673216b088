"""From the text of statements to their syntax trees."""
