#!/usr/bin/env bash
# KAFKA_LOG_DIRS becomes log.dirs, and so on; then one node that is broker and controller.
set -euo pipefail
properties=/tmp/server.properties
env | sed -n 's/^KAFKA_\([A-Z_]*\)=\(.*\)/\1=\2/p' | grep -v '^HEAP_OPTS=' | while IFS='=' read -r name value; do
  name=${name,,}
  echo "${name//_/.}=$value"
done >"$properties"
# shellcheck disable=SC2086 # options are words
run() { java ${KAFKA_HEAP_OPTS:-} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*' "$@"; }
run kafka.tools.StorageTool format --ignore-formatted -t 5L6g3nShT-eMCtK--X86sw -c "$properties"
# shellcheck disable=SC2086 # options are words
exec java ${KAFKA_HEAP_OPTS:-} -XX:+UseSerialGC -cp '/opt/kafka/libs/*' kafka.Kafka "$properties"
