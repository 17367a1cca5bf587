#!/usr/bin/env bash
# CONFIG_STORAGE_TOPIC becomes config.storage.topic, as does CONNECT_CONFIG_STORAGE_TOPIC; then a distributed worker.
set -euo pipefail
properties=/tmp/connect.properties
{
  echo "plugin.path=/kafka/connect"
  echo "listeners=http://0.0.0.0:8083"
  env | sed -nE 's/^(CONNECT_)?((BOOTSTRAP|GROUP|CONFIG|OFFSET|STATUS|KEY|VALUE)_[A-Z_]*)=(.*)/\2=\4/p' | while IFS='=' read -r name value; do
    name=${name,,}
    echo "${name//_/.}=$value"
  done
} >"$properties"
# shellcheck disable=SC2086 # options are words
exec java ${HEAP_OPTS:-} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*' org.apache.kafka.connect.cli.ConnectDistributed "$properties"
