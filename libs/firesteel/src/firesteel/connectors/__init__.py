"""Sources and sinks that come with Firesteel."""
