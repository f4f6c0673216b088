#!/bin/sh
# Prints the folder with the jars of Apache Kafka's server. Maven fetches them, once for each version: they stay in the
# user's cache. KAFKA_LIBS=/path/to/libs names another folder.
# Exit codes: 3 = there are none and none can be had here (the last line says why); others = something is broken.
set -eu
version=4.3.1
log4j=2.25.4 # without its binding for slf4j 1.7 the server says nothing

impossible() {
    echo "ensure-kafka: $*" >&2
    exit 3
}

if [ -n "${KAFKA_LIBS:-}" ]; then
    [ -d "$KAFKA_LIBS" ] || { echo "ensure-kafka: KAFKA_LIBS=$KAFKA_LIBS is no folder" >&2; exit 1; }
    echo "$KAFKA_LIBS"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
libs=$folder/kafka-$version
if [ ! -d "$libs" ]; then
    command -v mvn >/dev/null || impossible "there is no Kafka, and no Maven to fetch it"
    mkdir -p "$folder"
    exec 9>"$folder/kafka.lock"
    flock 9 # another one may be fetching
    if [ ! -d "$libs" ]; then
        work=$(mktemp -d "$folder/fetching-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        dependency() {
            echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"
        }
        cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>firesteel.tests</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    $(dependency org.apache.kafka kafka_2.13 "$version")
    $(dependency org.apache.logging.log4j log4j-slf4j-impl "$log4j")
  </dependencies>
</project>
POM
        (cd "$work" && nice mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs) >&2 ||
            impossible "Kafka can't be fetched: a Maven repository is needed"
        [ -e "$work/libs/kafka_2.13-$version.jar" ] || impossible "Maven brought no kafka_2.13-$version.jar"
        mv "$work/libs" "$libs"
    fi
fi
echo "$libs"
