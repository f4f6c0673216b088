#!/bin/sh
# Prints a folder with Flink's Java client and what it needs (jars from Maven), and with FlinkClient.class, compiled. Both stay in
# the user's cache. FLINK_CLIENT=/folder/with/jars names other jars.
# Exit codes: 3 = they can't be had here (the last line says why); others = something is broken.
set -eu
version=2.3.0
cd "$(dirname "$0")"

impossible() {
    echo "ensure-flink-client: $*" >&2
    exit 3
}

command -v javac >/dev/null || impossible "there is no Java compiler"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
made=$folder/flink-client-$version-$(cksum <FlinkClient.java | tr ' ' -)
if [ ! -f "$made/FlinkClient.class" ]; then
    mkdir -p "$folder"
    exec 9>"$folder/flink-client.lock"
    flock 9 # another one may be at it
    work=$(mktemp -d "$folder/building-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    if [ -n "${FLINK_CLIENT:-}" ]; then
        cp "$FLINK_CLIENT"/*.jar "$work"
    else
        command -v mvn >/dev/null || impossible "there is no Maven to fetch Flink's client, and FLINK_CLIENT names no folder"
        mkdir "$work/project"
        cat >"$work/project/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>firesteel</groupId><artifactId>flink-client</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.flink</groupId><artifactId>flink-clients</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
END
        mvn -q -B -f "$work/project/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work" >&2 </dev/null ||
            impossible "Maven can't fetch Flink's client"
        rm -r "$work/project"
    fi
    javac -nowarn -cp "$work/*" -d "$work" FlinkClient.java >&2
    rm -rf "$made"
    mv "$work" "$made"
fi
echo "$made"
