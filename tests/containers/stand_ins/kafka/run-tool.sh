#!/usr/bin/env bash
# One of Kafka's tools, by the name it is called by.
set -euo pipefail
case ${0##*/} in
  kafka-topics.sh) class=org.apache.kafka.tools.TopicCommand ;;
  kafka-configs.sh) class=kafka.admin.ConfigCommand ;;
  kafka-console-consumer.sh) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
esac
# shellcheck disable=SC2086 # options are words
exec java ${KAFKA_HEAP_OPTS:--Xmx256m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
  -cp '/opt/kafka/libs/*' "$class" "$@"
