#!/bin/sh
# Prints the folder with the jars of Apache Kafka's server; KAFKA_LIBS=/path/to/libs names another one.
# Exit codes: those of ensure-jars.sh.
set -eu
version=4.3.1
# Without log4j's binding for slf4j 1.7 the server says nothing.
exec sh "$(dirname "$0")/../ensure-jars.sh" kafka "$version" KAFKA_LIBS \
    "org.apache.kafka:kafka_2.13:$version" org.apache.logging.log4j:log4j-slf4j-impl:2.25.4
