"""What users implement: functions, sources, sinks, state descriptors."""
