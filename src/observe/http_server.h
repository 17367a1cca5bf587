// HttpServer - /livez /readyz /healthz /metrics /status /history /configuration and the page at /
//   on one port, from the newest Snapshot.
// Thread: one thread of libmicrohttpd for each address; it waits for all connections at once, so
//   one that asks nothing keeps nobody waiting. It reads SnapshotBoard and nothing else.
// Lifetime: `board` must outlive the server; the destructor stops it. Semantics: /livez is 200
//   while the loop has published within `live_within` (it publishes at least once a second,
//   whatever PostgreSQL or Kafka do), else 503. /readyz is 200 in every state but starting and
//   halted; standby is ready; ?verbose lists each check. /healthz = /livez. With a `token` these
//   three, but not ?verbose, are open, since probes have no secrets; all else is 401 without it.
//   Without a token all else is 421 for a Host that a foreign site could have (DNS rebinding).
// Units/limits: 256 connections, shared by the addresses; one more ends the oldest. While those
//   end, a few more for each address; others wait in the kernel, without a descriptor of this
//   process. 5 s without a byte end a connection.
// Errors: kUnavailable when an address cannot be bound, naming it; kInvalidArgument for what is no
// address.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "observe/snapshot.h"

namespace walpost::observe {

struct HttpOptions {
  std::string listen = "127.0.0.1:9464";  // port 0 = any free port; empty = no server
  std::vector<std::string> hosts;         // names under which it may be asked without a token
  std::chrono::milliseconds live_within{10'000};
  std::string version;
  std::string configuration;  // for people, without secrets
  std::string token;          // asked for; empty = everybody may look
};

class HttpServer {
 public:
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           const SnapshotBoard* board);
  virtual ~HttpServer() = default;
  virtual int port() const = 0;

  // Takes `configuration` and `token` from now on, and nothing else. Any thread.
  virtual void Reconfigure(const HttpOptions& options) = 0;
};

// The bodies, for tests and `walpost status`.
std::string RenderMetrics(const Snapshot& snapshot, const std::string& version);
std::string RenderStatusJson(const Snapshot& snapshot, const std::string& version);

}  // namespace walpost::observe
