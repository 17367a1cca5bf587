#include "kafka/encryption.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <memory>
#include <string>
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

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

  void operator()(SSL* connection) const { SSL_free(connection); }

  void operator()(STACK_OF(SSL_CIPHER) * suites) const { sk_SSL_CIPHER_free(suites); }
};

// A suite without encryption or authentication that a connection with this list would offer; empty = none.
// OpenSSL says so, because what a word of the list stands for depends on its version and security level.
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
