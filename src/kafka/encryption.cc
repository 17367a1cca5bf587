#include "kafka/encryption.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/loopback.h"
#include "kafka/properties.h"

namespace walpost::kafka {
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

// OpenSSL's names of suites without encryption or authentication hold NULL. What follows ! or - is left out.
bool MayUseNoCipher(const std::string& suites) {
  const std::string upper = absl::AsciiStrToUpper(suites);
  const std::vector<std::string> names = absl::StrSplit(upper, absl::ByAnyChar(":, "));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find("NULL") != std::string::npos && name[0] != '!' && name[0] != '-';
  });
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
    if (name == "ssl.cipher.suites" && MayUseNoCipher(value)) {
      return "ssl.cipher.suites has a suite without encryption or without authentication";
    }
    if (name == "sasl.oauthbearer.token.endpoint.url" &&
        !absl::StartsWithIgnoreCase(value, "https://")) {
      return "sasl.oauthbearer.token.endpoint.url is no https URL: the client's secret goes there";
    }
  }
  const absl::StatusOr<Conf> conf = BuildConf(options, delivery::Sink::Mode::kPipelined);
  if (!conf.ok()) {
    return "";  // that is refused for itself
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
