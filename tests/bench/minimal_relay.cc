// The practical limit that scripts/bench compares with: libpq + librdkafka and nothing else. No
// guarantees: it forgets errors, reconnects never, and trusts every byte.
//   minimal_relay CONNINFO SLOT PUBLICATION BROKERS TOPIC EVENTS     ends after EVENTS reports
// Reads outbox.events in text mode: column 4 is the key, column 6 the payload.
#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
long reported = 0;

std::uint64_t Number(const char* at, int bytes) {
  std::uint64_t number = 0;
  for (int i = 0; i < bytes; ++i) number = number << 8 | static_cast<unsigned char>(at[i]);
  return number;
}

int Nibble(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

void Set(rd_kafka_conf_t* conf, const char* name, const char* value) {
  char error[256];
  if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) std::abort();
}

void SendStatus(PGconn* pg, std::uint64_t lsn) {
  char status[34] = {'r'};
  for (int field = 0; field < 3; ++field)
    for (int i = 0; i < 8; ++i) status[1 + field * 8 + i] = static_cast<char>(lsn >> (56 - 8 * i));
  PQputCopyData(pg, status, sizeof status);
  PQflush(pg);
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 64;
  PGconn* pg = PQconnectdb((std::string(argv[1]) + " replication=database").c_str());
  const std::string start = std::string("START_REPLICATION SLOT \"") + argv[2] +
                            "\" LOGICAL 0/0 (proto_version '1', publication_names '" + argv[3] +
                            "')";
  PGresult* started = PQexec(pg, start.c_str());
  if (PQresultStatus(started) != PGRES_COPY_BOTH) return std::fputs(PQerrorMessage(pg), stderr), 69;
  PQclear(started);

  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  Set(conf, "bootstrap.servers", argv[4]);
  Set(conf, "enable.idempotence", "true");
  Set(conf, "acks", "all");
  Set(conf, "linger.ms", "5");
  Set(conf, "compression.codec", "none");
  Set(conf, "partitioner", "murmur2_random");
  Set(conf, "batch.size", "900000");
  rd_kafka_conf_set_dr_msg_cb(
      conf, [](rd_kafka_t*, const rd_kafka_message_t* m, void*) { reported += m->err == 0; });
  rd_kafka_t* kafka = rd_kafka_new(RD_KAFKA_PRODUCER, conf, nullptr, 0);
  rd_kafka_topic_t* topic = rd_kafka_topic_new(kafka, argv[5], nullptr);

  const long events = std::atol(argv[6]);
  std::string value;
  auto next_status = std::chrono::steady_clock::now();
  while (reported < events) {
    pollfd socket{PQsocket(pg), POLLIN, 0};
    poll(&socket, 1, 10);
    if (PQconsumeInput(pg) == 0) return std::fputs(PQerrorMessage(pg), stderr), 69;
    char* frame = nullptr;
    while (PQgetCopyData(pg, &frame, 1) > 0) {
      if (frame[0] == 'w' && frame[25] == 'I') {
        const char* at = frame + 25 + 1 + 4 + 1 + 2;
        const char* column[7];
        std::size_t size[7];
        for (int i = 0; i < 7; ++i) {
          const bool text = *at++ == 't';
          size[i] = text ? Number(at, 4) : 0;
          column[i] = text ? at + 4 : at;
          at = column[i] + size[i];
        }
        value.resize((size[6] - 2) / 2);  // \x and two digits a byte
        for (std::size_t i = 0; i < value.size(); ++i)
          value[i] =
              static_cast<char>(Nibble(column[6][2 + 2 * i]) << 4 | Nibble(column[6][3 + 2 * i]));
        while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, value.data(),
                                value.size(), column[4], size[4], nullptr) != 0)
          rd_kafka_poll(kafka, 1);
      }
      PQfreemem(frame);
    }
    rd_kafka_poll(kafka, 0);
    if (std::chrono::steady_clock::now() >= next_status) {
      SendStatus(pg, 0);
      next_status += std::chrono::seconds(1);
    }
  }
}
