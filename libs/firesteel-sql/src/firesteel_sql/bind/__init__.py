"""From syntax trees to relations: names are looked up, types found, and what does not fit is refused with its place."""
