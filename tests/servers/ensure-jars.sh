#!/bin/sh
# Prints a folder with jars. Maven fetches them, once for each version: they stay in the user's cache.
#   ensure-jars.sh NAME VERSION VARIABLE JAR...
# JAR is group:artifact:version, with all that it needs; with ":alone" behind it, the jar and nothing else. The
# environment variable VARIABLE names another folder with them.
# Exit codes: 3 = there are none and none can be had here (the last line says why); others = something is broken.
set -eu
name=$1 version=$2 variable=$3
shift 3

impossible() {
    echo "ensure-jars: $*" >&2
    exit 3
}

eval "given=\${$variable:-}"
if [ -n "$given" ]; then
    [ -d "$given" ] || { echo "ensure-jars: $variable=$given is no folder" >&2; exit 1; }
    echo "$given"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
jars=$folder/$name-$version
if [ ! -d "$jars" ]; then
    command -v mvn >/dev/null || impossible "there is no $name, and no Maven to fetch it"
    mkdir -p "$folder"
    exec 9>"$folder/$name.lock"
    flock 9 # another one may be fetching
    if [ ! -d "$jars" ]; then
        work=$(mktemp -d "$folder/fetching-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        dependency() {
            echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version>"
            if [ "${4:-}" = alone ]; then
                echo "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
            fi
            echo "</dependency>"
        }
        {
            echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            echo "<groupId>firesteel.tests</groupId><artifactId>$name</artifactId><version>1</version>"
            echo "<packaging>pom</packaging><dependencies>"
            for jar in "$@"; do
                (IFS=:; dependency $jar)
            done
            echo "</dependencies></project>"
        } >"$work/pom.xml"
        (cd "$work" && nice mvn -B -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars) >&2 ||
            impossible "$name can't be fetched: a Maven repository is needed"
        for jar in "$@"; do
            file=$(IFS=:; set -- $jar; echo "$2-$3.jar")
            [ -e "$work/jars/$file" ] || impossible "Maven brought no $file"
        done
        mv "$work/jars" "$jars"
    fi
fi
echo "$jars"
