"""What every operator is built from: base classes, the context it is opened with, timers, and its failures."""
