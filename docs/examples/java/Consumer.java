import io.walpost.v1.Envelope; // protoc --java_out
import java.sql.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.*;

/** Writes an invoice for each order, once, although records come again: inbox and invoice are one transaction. */
public final class Consumer {
  public static void main(String[] arguments) throws Exception {
    String group = System.getenv("GROUP");
    Map<String, Object> settings = Map.of("bootstrap.servers", System.getenv("BOOTSTRAP_SERVERS"), "group.id", group,
        "enable.auto.commit", false, "auto.offset.reset", "earliest");
    try (var kafka = new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer());
        Connection db = DriverManager.getConnection(System.getenv("DATABASE_URL"));
        PreparedStatement invoice = db.prepareStatement("INSERT INTO invoices (order_id, total)"
            + " SELECT ?::bigint, (?::jsonb ->> 'total')::numeric WHERE inbox.accept(?, ?)")) {
      db.setAutoCommit(false);
      Thread main = Thread.currentThread();
      Runtime.getRuntime().addShutdownHook(new Thread(() -> {
        kafka.wakeup();
        try { main.join(); } catch (InterruptedException ignored) { }
      }));
      kafka.subscribe(List.of("order"));
      while (true) {
        for (ConsumerRecord<String, byte[]> record : kafka.poll(Duration.ofSeconds(1))) {
          Envelope event = Envelope.parseFrom(record.value());
          if (!event.getType().equals("OrderPlaced")) continue;
          String[] values = {event.getAggregateId(), event.getPayload().toStringUtf8(), group, event.getId()};
          for (int n = 0; n < values.length; n++) invoice.setString(n + 1, values[n]);
          invoice.executeUpdate();
        }
        db.commit();
        kafka.commitSync(); // after the database, never before
      }
    } catch (WakeupException stopped) { }
  }
}
