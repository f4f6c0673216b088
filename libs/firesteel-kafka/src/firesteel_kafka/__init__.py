"""Topics of Apache Kafka as source and sink."""
