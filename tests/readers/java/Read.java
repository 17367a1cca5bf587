import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Timestamp;
import io.cloudevents.CloudEvent;
import io.cloudevents.CloudEventData;
import io.cloudevents.kafka.CloudEventDeserializer;
import io.cloudevents.protobuf.ProtoCloudEventData;
import io.walpost.v1.Envelope;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A consumer in Java: reads topics to their ends and prints what it sees, one line of JSON for each record.
 *
 * <p>Arguments: bootstrap servers, then KIND=TOPIC..., where KIND is envelope or cloudevents.
 */
public final class Read {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    for (String argument : List.of(arguments).subList(1, arguments.length)) {
      String[] parts = argument.split("=", 2);
      if (parts[0].equals("envelope")) {
        each(arguments[0], parts[1], new ByteArrayDeserializer(), Read::envelope);
      } else {
        each(arguments[0], parts[1], new CloudEventDeserializer(), Read::cloudEvent);
      }
    }
  }

  private interface Printer<V> {
    void put(V value, ObjectNode line) throws Exception;
  }

  private static <V> void each(String bootstrap, String topic, Deserializer<V> values, Printer<V> printer)
      throws Exception {
    Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
    try (KafkaConsumer<String, V> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), values)) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(topic).stream().map(one -> new TopicPartition(topic, one.partition())).toList();
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
        for (ConsumerRecord<String, V> record : consumer.poll(Duration.ofSeconds(1))) {
          ObjectNode line = JSON.createObjectNode();
          line.put("topic", topic).put("key", record.key()).put("partition", record.partition());
          line.put("offset", record.offset()).put("timestamp_ms", record.timestamp());
          for (Header header : record.headers()) {
            line.withArray("/record_headers").addArray().add(header.key()).add(new String(header.value(), "UTF-8"));
          }
          if (record.value() == null) {
            line.put("tombstone", true);
          } else {
            printer.put(record.value(), line);
          }
          System.out.println(JSON.writeValueAsString(line));
        }
      }
    }
  }

  private static Long micros(boolean present, Timestamp time) {
    return present ? time.getSeconds() * 1_000_000 + time.getNanos() / 1_000 : null;
  }

  private static long micros(OffsetDateTime time) {
    return time.toEpochSecond() * 1_000_000 + time.getNano() / 1_000;
  }

  private static void envelope(byte[] value, ObjectNode line) throws Exception {
    Envelope envelope = Envelope.parseFrom(value);
    line.put("id", envelope.getId());
    line.put("type", envelope.getType());
    line.put("aggregate_type", envelope.getAggregateType());
    line.put("aggregate_id", envelope.hasAggregateId() ? envelope.getAggregateId() : null);
    line.put("payload", envelope.hasPayload() ? envelope.getPayload().toByteArray() : null);
    line.put("content_type", envelope.getContentType());
    line.put("schema_name", envelope.getSchemaName());
    ObjectNode headers = line.putObject("headers");
    envelope.getHeadersMap().forEach(headers::put);
    line.put("occurred_at", micros(envelope.hasOccurredAt(), envelope.getOccurredAt()));
    line.put("committed_at", micros(envelope.hasCommittedAt(), envelope.getCommittedAt()));
    line.put("traceparent", envelope.getTraceparent());
    line.put("tracestate", envelope.getTracestate());
    line.put("database", envelope.getSource().getDatabase());
    line.put("schema", envelope.getSource().getSchema());
    line.put("table", envelope.getSource().getTable());
    line.put("system_identifier", Long.toUnsignedString(envelope.getSource().getSystemIdentifier()));
    line.put("timeline", Integer.toUnsignedLong(envelope.getSource().getTimeline()));
    line.put("xid", Integer.toUnsignedLong(envelope.getSource().getXid()));
    line.put("commit_lsn", Long.toUnsignedString(envelope.getPosition().getCommitLsn()));
    line.put("ordinal", Integer.toUnsignedLong(envelope.getPosition().getOrdinal()));
    line.put("unknown_fields", envelope.getUnknownFields().getSerializedSize());
  }

  private static void cloudEvent(CloudEvent event, ObjectNode line) {
    line.put("id", event.getId());
    line.put("source", event.getSource().toString());
    line.put("type", event.getType());
    line.put("specversion", event.getSpecVersion().toString());
    BiConsumer<String, Object> optional = (name, value) -> {
      if (value != null) {
        line.put(name, value.toString());
      }
    };
    optional.accept("subject", event.getSubject());
    optional.accept("datacontenttype", event.getDataContentType());
    optional.accept("dataschema", event.getDataSchema());
    line.put("time", event.getTime() == null ? null : micros(event.getTime()));
    ObjectNode extensions = line.putObject("extensions");
    for (String name : event.getExtensionNames()) {
      Object value = event.getExtension(name);
      extensions.put(name, value instanceof OffsetDateTime time ? "micros " + micros(time) : value.toString());
    }
    CloudEventData data = event.getData();
    line.put("data", data == null ? null : data.toBytes());
    if (data instanceof ProtoCloudEventData message) {
      line.put("type_url", message.getAny().getTypeUrl());
      line.put("data", message.getAny().getValue().toByteArray());
    }
  }
}
