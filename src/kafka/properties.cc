#include "kafka/properties.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/text.h"

namespace walpost::kafka {
namespace {

using PropertyList = std::vector<std::pair<std::string, std::string>>;

struct Guarded {
  std::string_view name;
  std::string_view safe;  // the one value that is accepted; empty = none
  std::string_view reason;
};

constexpr Guarded kGuarded[] = {
    {"enable.idempotence", "true", "without it a retry can duplicate and reorder events"},
    {"acks", "all", "with less, an acknowledged event can be lost"},
    {"request.required.acks", "all", "with less, an acknowledged event can be lost"},
    {"enable.gapless.guarantee", "true", "without it later events overtake one that failed"},
    {"message.timeout.ms", "0",
     "an event that times out leaves a gap; walpost waits as long as Kafka needs"},
    {"delivery.timeout.ms", "0",
     "an event that times out leaves a gap; walpost waits as long as Kafka needs"},
    {"max.in.flight", "5", "idempotence keeps the order of at most 5 requests"},
    {"max.in.flight.requests.per.connection", "5",
     "idempotence keeps the order of at most 5 requests"},
    {"retries", "2147483647", "giving up leaves a gap"},
    {"message.send.max.retries", "2147483647", "giving up leaves a gap"},
    {"queuing.strategy", "fifo", "anything else reorders"},
    {"partitioner", "",
     "walpost chooses the partition itself, as Java clients do, so that keys stay where they are"},
    {"transactional.id", "", "it belongs to exactly-once mode, which is not built yet"},
    {"delivery.report.only.error", "false", "walpost needs the report of every event"},
    {"produce.offset.report", "", "it belongs to walpost"},
    {"log.queue", "true", "logs must not be printed by other threads"},
    {"enabled_events", "", "it belongs to walpost"},
    {"enable.sparse.connections", "false",
     "a broker that is cut off from the controller may be the only one that is asked"},
    {"topic.blacklist", "", "a topic that it hides would be one that does not exist"},
    {"sticky.partitioning.linger.ms", "", "walpost chooses the partition itself"},
    // When it is set, so also by what only shows or checks a configuration.
    {"plugin.library.paths", "", "it loads foreign code into walpost"},
};

absl::Status CheckGuarded(const std::string& name, const std::string& value) {
  for (const Guarded& guarded : kGuarded) {
    if (name != guarded.name || value == guarded.safe) {
      continue;
    }
    const bool same = guarded.safe == "all" && value == "-1";
    if (!same) {
      return absl::InvalidArgumentError(
          absl::StrFormat("sink.kafka.properties: %s cannot be set to '%s': %s; remove it", name,
                          value, guarded.reason));
    }
  }
  return absl::OkStatus();
}

// What walpost sets unless the user does.
PropertyList Defaults(const KafkaOptions& options, const ProducerLimits& limits) {
  const std::size_t records = options.in_flight_bytes_max / 768 + 1'000;
  const std::size_t kilobytes =
      std::max({options.in_flight_bytes_max / 1'024 * 2, std::size_t{2'048},
                static_cast<std::size_t>(limits.message_bytes_max) / 1'024 * 2});
  return {{"client.id", options.name},
          {"allow.auto.create.topics", "false"},
          {"linger.ms", "0.5"},
          {"batch.size", std::to_string(kBatchBytes)},
          {"message.max.bytes", std::to_string(limits.message_bytes_max)},
          {"socket.nagle.disable", "true"},
          {"socket.keepalive.enable", "true"},
          {"reconnect.backoff.max.ms", "2000"},
          {"queue.buffering.max.messages", std::to_string(records)},
          {"queue.buffering.max.kbytes", std::to_string(kilobytes)},
          {"topic.metadata.refresh.interval.ms", std::to_string(options.metadata_refresh.count())},
          {"statistics.interval.ms", "15000"}};
}

PropertyList Forced(delivery::Sink::Mode mode) {
  const bool pipelined = mode == delivery::Sink::Mode::kPipelined;
  PropertyList forced = {{"enable.idempotence", "true"},
                         {"acks", "all"},
                         {"message.timeout.ms", "0"},
                         {"max.in.flight.requests.per.connection", "5"},
                         {"log.queue", "true"},
                         {"enable.gapless.guarantee", pipelined ? "true" : "false"},
                         {"enable.sparse.connections", "false"}};
  if (!pipelined) {
    forced.emplace_back("linger.ms", "0");
  }
  return forced;
}

absl::Status Apply(const PropertyList& properties, rd_kafka_conf_t* conf) {
  for (const auto& [name, value] : properties) {
    std::array<char, 512> error{};
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error.data(), error.size()) !=
        RD_KAFKA_CONF_OK) {
      // librdkafka quotes the value, and a secret may stand at the wrong name.
      const std::string quoted = "\"" + value + "\"";
      std::string why(error.data());
      for (std::size_t at = why.find(quoted); at != std::string::npos; at = why.find(quoted, at)) {
        why.replace(at, quoted.size(), "\"***\"");
        at += 5;
      }
      return absl::InvalidArgumentError(
          absl::StrFormat("sink.kafka.properties: %s: %s", name, base::HideRuns(why, {value})));
    }
  }
  return absl::OkStatus();
}

// A batch that is larger than its topic's limit fails as a whole, although each record would fit.
absl::Status LowerBatchSize(const ProducerLimits& limits, rd_kafka_conf_t* conf) {
  if (!limits.batch_bytes_max ||
      std::stoll(InForce(conf, "batch.size")) <= *limits.batch_bytes_max) {
    return absl::OkStatus();
  }
  return Apply({{"batch.size", std::to_string(*limits.batch_bytes_max)}}, conf);
}

// Of a record that is larger than the queue librdkafka says for ever that the queue is full.
absl::Status RaiseQueue(rd_kafka_conf_t* conf) {
  const std::int64_t record = std::stoll(InForce(conf, "message.max.bytes")) / 1'024 + 1;
  if (std::stoll(InForce(conf, "queue.buffering.max.kbytes")) >= record) {
    return absl::OkStatus();
  }
  return Apply({{"queue.buffering.max.kbytes", std::to_string(record)}}, conf);
}

}  // namespace

std::string InForce(const rd_kafka_conf_t* conf, const std::string& name) {
  std::array<char, 512> value{};
  std::size_t size = value.size();
  const rd_kafka_conf_res_t found = rd_kafka_conf_get(conf, name.c_str(), value.data(), &size);
  return found == RD_KAFKA_CONF_OK ? std::string(value.data()) : std::string();
}

std::string Shown(std::string_view text, const KafkaOptions& options) {
  // A secret may stand at the wrong name, and librdkafka quotes these. No mechanism's name is so
  // long.
  constexpr std::string_view kQuoted[] = {"sasl.mechanism", "sasl.mechanisms", "ssl.curves.list",
                                          "ssl.sigalgs.list"};
  constexpr std::size_t kNameMax = 32;
  std::vector<std::string> secrets = options.secrets;
  for (const auto& [name, value] : options.properties) {
    if (base::PropertyMayHoldSecret(name) ||
        (value.size() > kNameMax &&
         std::find(std::begin(kQuoted), std::end(kQuoted), name) != std::end(kQuoted))) {
      secrets.push_back(value);
    }
  }
  return base::HideRuns(text, secrets);
}

bool Compresses(const rd_kafka_conf_t* conf) {
  return InForce(conf, "compression.codec") != "none";
}

absl::StatusOr<Conf> BuildConf(const KafkaOptions& options, delivery::Sink::Mode mode,
                               const ProducerLimits& limits) {
  bool has_servers = false;
  for (const auto& [name, value] : options.properties) {
    RETURN_IF_ERROR(CheckGuarded(name, value));
    has_servers = has_servers || name == "bootstrap.servers" || name == "metadata.broker.list" ||
                  name == "test.mock.num.brokers";
  }
  if (!has_servers) {
    return absl::InvalidArgumentError(
        "sink.kafka.properties: bootstrap.servers is missing: say where Kafka is, for "
        "example \"kafka-1:9092,kafka-2:9092\"");
  }
  Conf conf(rd_kafka_conf_new());
  RETURN_IF_ERROR(Apply(Defaults(options, limits), conf.get()));
  RETURN_IF_ERROR(Apply(options.properties, conf.get()));
  RETURN_IF_ERROR(Apply(Forced(mode), conf.get()));
  RETURN_IF_ERROR(LowerBatchSize(limits, conf.get()));
  RETURN_IF_ERROR(RaiseQueue(conf.get()));
  rd_kafka_conf_set_events(conf.get(), RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR |
                                           RD_KAFKA_EVENT_LOG | RD_KAFKA_EVENT_STATS);
  return conf;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> EffectiveProperties(
    const KafkaOptions& options) {
  ASSIGN_OR_RETURN(const Conf conf, BuildConf(options, delivery::Sink::Mode::kPipelined));
  PropertyList effective = Defaults(options, {});
  // The user may have set one of them by librdkafka's other name for it.
  for (auto& [name, value] : effective) {
    value = InForce(conf.get(), name);
  }
  effective.insert(effective.end(), options.properties.begin(), options.properties.end());
  const PropertyList forced = Forced(delivery::Sink::Mode::kPipelined);
  effective.insert(effective.end(), forced.begin(), forced.end());
  std::stable_sort(effective.begin(), effective.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // The last of each name is the one in force.
  PropertyList result;
  for (auto& [name, value] : effective) {
    if (!result.empty() && result.back().first == name) {
      result.pop_back();
    }
    result.emplace_back(name, base::PropertyMayHoldSecret(name) ? "***" : value);
  }
  return result;
}

namespace {

bool Encrypts(std::string_view protocol) {
  const absl::string_view name(protocol.data(), protocol.size());
  return absl::EqualsIgnoreCase(name, "ssl") || absl::EqualsIgnoreCase(name, "sasl_ssl");
}

struct Server {
  std::string protocol;
  std::string address;  // host:port
};

// "kafka-1:9092, SSL://kafka-2:9093"
std::vector<Server> BootstrapServers(const KafkaOptions& options, const std::string& protocol) {
  std::string list;
  for (const auto& [name, value] : options.properties) {
    if (name == "bootstrap.servers" || name == "metadata.broker.list") {
      list = value;
    }
  }
  std::vector<Server> servers;
  for (const absl::string_view each : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    const std::string text(absl::StripAsciiWhitespace(each));
    const std::size_t prefix = text.find("://");
    servers.push_back(prefix == std::string::npos
                          ? Server{protocol, text}
                          : Server{text.substr(0, prefix), text.substr(prefix + 3)});
  }
  return servers;
}

std::string_view HostOf(std::string_view address) {
  const std::size_t port = address.rfind(':');
  const bool has_port = port != std::string_view::npos &&
                        address.find(']', port) == std::string_view::npos &&
                        (address.find(':') == port || address.front() == '[');
  return has_port ? address.substr(0, port) : address;
}

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

  void operator()(SSL* connection) const { SSL_free(connection); }

  void operator()(STACK_OF(SSL_CIPHER) * suites) const { sk_SSL_CIPHER_free(suites); }
};

// A suite without encryption or authentication that a connection with this list would offer; empty
// = none. OpenSSL says so, because what a word of the list stands for depends on its version and
// security level.
std::string WeakSuite(const std::string& list) {
  const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_cipher_list(context.get(), list.c_str()) != 1) {
    return "";  // librdkafka rejects it in the same way
  }
  const std::unique_ptr<SSL, Free> connection(SSL_new(context.get()));
  const std::unique_ptr<STACK_OF(SSL_CIPHER), Free> suites(
      connection == nullptr ? nullptr : SSL_get1_supported_ciphers(connection.get()));
  for (int i = 0; i < sk_SSL_CIPHER_num(suites.get()); ++i) {  // none: -1
    const SSL_CIPHER* suite = sk_SSL_CIPHER_value(suites.get(), i);
    if (SSL_CIPHER_get_cipher_nid(suite) == NID_undef ||
        SSL_CIPHER_get_auth_nid(suite) == NID_auth_null) {
      return SSL_CIPHER_get_name(suite);
    }
  }
  return "";
}

}  // namespace

std::string ClearTextWarning(const KafkaOptions& options, const std::vector<std::string>& brokers) {
  const absl::StatusOr<Conf> conf = BuildConf(options, delivery::Sink::Mode::kPipelined);
  if (!conf.ok()) {
    return "";
  }
  const std::string protocol = InForce(conf->get(), "security.protocol");
  std::vector<Server> servers = BootstrapServers(options, protocol);
  for (const std::string& broker : brokers) {
    servers.push_back({protocol, broker});
  }
  std::vector<std::string> clear;
  for (Server& server : servers) {
    if (!Encrypts(server.protocol) && !base::IsLoopbackHost(HostOf(server.address)) &&
        std::find(clear.begin(), clear.end(), server.address) == clear.end()) {
      clear.push_back(std::move(server.address));
    }
  }
  if (clear.empty()) {
    return "";
  }
  return absl::StrFormat(
      "Kafka is spoken to in clear text (security.protocol %s) at %s: whoever is on the way can "
      "read and change events, and take passwords; set security.protocol to SSL or SASL_SSL in "
      "sink.kafka.properties",
      protocol, absl::StrJoin(clear, ", "));
}

std::string WhyMayBeClearText(const KafkaOptions& options) {
  for (const auto& [name, value] : options.properties) {
    if (const std::string suite = name == "ssl.cipher.suites" ? WeakSuite(value) : "";
        !suite.empty()) {
      return absl::StrCat("ssl.cipher.suites has ", suite,
                          ", which is without encryption or without authentication");
    }
    if (name == "sasl.oauthbearer.token.endpoint.url" &&
        !absl::StartsWithIgnoreCase(value, "https://")) {
      return "sasl.oauthbearer.token.endpoint.url is no https URL: the client's secret goes there";
    }
  }
  const absl::StatusOr<Conf> conf = BuildConf(options, delivery::Sink::Mode::kPipelined);
  if (!conf.ok()) {
    return "";  // that is rejected for itself
  }
  const std::string protocol = InForce(conf->get(), "security.protocol");
  if (!Encrypts(protocol)) {
    return absl::StrCat("security.protocol is ", protocol);
  }
  for (const Server& server : BootstrapServers(options, protocol)) {
    if (!Encrypts(server.protocol)) {
      return absl::StrCat("bootstrap.servers has ", server.protocol, "://", server.address);
    }
  }
  return "";
}

}  // namespace walpost::kafka
