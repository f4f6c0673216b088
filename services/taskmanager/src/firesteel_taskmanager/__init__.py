"""TaskManager: slots and the subtasks in them."""
