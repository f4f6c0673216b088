#!/bin/sh
# Prints the folder with the jars of Hadoop's servers that PySpark's own jars lack; HADOOP_SERVER_JARS=/path names another
# one. The version has to be that of PySpark's hadoop-client-api, which is given as the only argument.
# Exit codes: those of ensure-jars.sh.
set -eu
version=$1
# The ResourceManager makes certificates at its start, with Bouncy Castle.
exec sh "$(dirname "$0")/../ensure-jars.sh" hadoop "$version" HADOOP_SERVER_JARS \
    "org.apache.hadoop:hadoop-client-minicluster:$version:alone" org.bouncycastle:bcpkix-jdk18on:1.82
