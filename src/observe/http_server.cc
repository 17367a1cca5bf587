#include "observe/http_server.h"

#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "observe/http_client.h"
#include "observe/page.h"
#include "observe/snapshot.h"

namespace walpost::observe {
namespace {

// What the page may load: its own two files, and what it asks this server for.
constexpr char kPageMayLoad[] =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// Of all addresses together; one more ends the oldest one. A connection lives for milliseconds when
// its client asks something, so the oldest is one that asks nothing.
constexpr std::size_t kConnectionsMax = 256;
// Of each address, while the oldest end: libmicrohttpd takes ten at most before it looks at what
// has ended.
constexpr std::size_t kConnectionsEnding = 16;
constexpr unsigned kIdleSecondsMax = 5;
constexpr std::size_t kRequestBytesMax = 16 * 1024;

struct Response {
  int code = 200;
  const char* type = "text/plain; charset=utf-8";
  std::vector<std::pair<const char*, const char*>> more_headers;
  std::string body;
};

// Probes of an orchestrator have no secrets.
bool IsOpenToAll(std::string_view path, bool verbose) {
  return path == "/livez" || path == "/healthz" || (path == "/readyz" && !verbose);
}

// Of each connection. The kernel holds no more of an answer that nobody reads, and not for long:
// what it sends after our end is gone counts towards no limit of ours.
constexpr int kSendBufferBytes = 32 * 1024;
constexpr unsigned kUnreadForMs = 10'000;

// A socket that listens on this address, or why there is none.
absl::StatusOr<int> ListenOn(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const char* host = address.host.empty() ? "0.0.0.0" : address.host.c_str();
  if (const int error = getaddrinfo(host, address.port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const absl::Cleanup free = [found] { freeaddrinfo(found); };
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  constexpr int kOn = 1;
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof(kOn)) != 0 ||
      setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes)) !=
          0 ||
      setsockopt(listener, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnreadForMs, sizeof(kUnreadForMs)) !=
          0 ||
      bind(listener, found->ai_addr, found->ai_addrlen) != 0 || listen(listener, SOMAXCONN) != 0) {
    const absl::Status status = absl::UnavailableError(std::strerror(errno));
    if (listener >= 0) {
      close(listener);
    }
    return status;
  }
  return listener;
}

// One listening socket and the thread that serves all its connections.
class Listener {
 public:
  using Answer = MHD_Result (*)(void* server, MHD_Connection* connection, const char* path,
                                const char* method, const char* version, const char* upload,
                                std::size_t* upload_size, void** request);

  explicit Listener(std::size_t connections_max) : connections_max_(connections_max) {}

  ~Listener() {
    if (daemon_ != nullptr) {
      MHD_stop_daemon(daemon_);  // closes the socket, too
    }
  }

  absl::Status Start(const ListenAddress& address, Answer answer, void* server) {
    ASSIGN_OR_RETURN(const int listener, ListenOn(address));
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, answer, server,
        MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT,
        static_cast<unsigned>(connections_max_ + kConnectionsEnding), MHD_OPTION_CONNECTION_TIMEOUT,
        kIdleSecondsMax, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytesMax,
        MHD_OPTION_NOTIFY_CONNECTION, &Listener::OnConnection, this, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      close(listener);
      return absl::UnavailableError("no thread for it");
    }
    return absl::OkStatus();
  }

  int port() const { return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port; }

 private:
  // On the listener's thread.
  static void OnConnection(void* self, MHD_Connection* connection, void** /*of_connection*/,
                           MHD_ConnectionNotificationCode what) {
    auto* listener = static_cast<Listener*>(self);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      listener->Add(connection);
    } else {
      listener->Remove(connection);
    }
  }

  void Add(MHD_Connection* connection) {
    by_age_.push_back(connection);
    ages_[connection] = std::prev(by_age_.end());
    if (by_age_.size() > connections_max_) {
      MHD_Connection* const oldest = by_age_.front();
      // This thread sees the end and closes it, a moment later: the next one ends another.
      shutdown(MHD_get_connection_info(oldest, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
               SHUT_RDWR);
      Remove(oldest);
    }
  }

  void Remove(MHD_Connection* connection) {
    if (const auto found = ages_.find(connection); found != ages_.end()) {
      by_age_.erase(found->second);
      ages_.erase(found);
    }
  }

  const std::size_t connections_max_;
  std::list<MHD_Connection*> by_age_;  // those that are not ending, oldest first
  std::map<MHD_Connection*, std::list<MHD_Connection*>::iterator> ages_;
  MHD_Daemon* daemon_ = nullptr;
};

class Server : public HttpServer {
 public:
  Server(HttpOptions options, const SnapshotBoard* board)
      : options_(std::move(options)),
        board_(board),
        token_(options_.token),
        configuration_(options_.configuration) {}

  absl::Status Listen() {
    ASSIGN_OR_RETURN(const std::vector<ListenAddress> addresses, ParseListen(options_.listen));
    for (const ListenAddress& address : addresses) {
      auto listener =
          std::make_unique<Listener>(std::max(kConnectionsMax / addresses.size(), std::size_t{1}));
      if (const absl::Status status = listener->Start(address, &Server::Handle, this);
          !status.ok()) {
        return absl::UnavailableError(absl::StrFormat(
            "http.listen: cannot listen on %s: %s; is the port in use, and the address local?",
            options_.listen, std::string(status.message())));
      }
      listeners_.push_back(std::move(listener));
    }
    return absl::OkStatus();
  }

  int port() const override { return listeners_.empty() ? 0 : listeners_.front()->port(); }

  void Reconfigure(const HttpOptions& options) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    token_ = options.token;
    configuration_ = options.configuration;
  }

 private:
  static MHD_Result Handle(void* self, MHD_Connection* connection, const char* path,
                           const char* method, const char* /*version*/, const char* /*upload*/,
                           std::size_t* /*upload_size*/, void** /*request*/) {
    const Response response = static_cast<Server*>(self)->Answer(connection, path, method);
    MHD_Response* made = MHD_create_response_from_buffer(
        response.body.size(), const_cast<char*>(response.body.data()), MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(made, "Content-Type", response.type);
    MHD_add_response_header(made, "Cache-Control", "no-store");
    MHD_add_response_header(made, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(made, "Connection", "close");
    for (const auto& [name, value] : response.more_headers) {
      MHD_add_response_header(made, name, value);
    }
    const MHD_Result queued =
        MHD_queue_response(connection, static_cast<unsigned>(response.code), made);
    MHD_destroy_response(made);
    return queued;
  }

  Response Answer(MHD_Connection* connection, std::string_view path, std::string_view method) {
    const bool verbose =
        MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND, "verbose",
                                      std::strlen("verbose"), nullptr, nullptr) == MHD_YES;
    Response response;
    if (!IsOpenToAll(path, verbose) && !MayAsk(connection, &response)) {
      return response;
    }
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      response.code = MHD_HTTP_METHOD_NOT_ALLOWED;
      response.more_headers = {{"Allow", "GET, HEAD"}};
      response.body = "only GET and HEAD\n";
    } else if (!Route(path, verbose, &response)) {
      response.code = MHD_HTTP_NOT_FOUND;
      response.body = "not found; try / /status /history /configuration /metrics /livez /readyz\n";
    }
    return response;
  }

  // With a token, who knows it. Without one, everybody who asks this host by a name of its own: a
  // page of a foreign site can make a browser ask here, but then under that site's name.
  bool MayAsk(MHD_Connection* connection, Response* response) const {
    const std::string token = Copy(&Server::token_);
    const auto header = [connection](const char* name) -> std::string_view {
      const char* value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
      return value == nullptr ? "" : value;
    };
    if (token.empty()) {
      if (IsOwnHost(header("Host"), options_.hosts)) {
        return true;
      }
      response->code = MHD_HTTP_MISDIRECTED_REQUEST;
      response->body =
          "this Host could be a foreign site's name: ask by address or by a local name, add the "
          "name "
          "to http.hosts, or set http.token\n";
      return false;
    }
    if (Admits(header("Authorization"), token)) {
      return true;
    }
    response->code = MHD_HTTP_UNAUTHORIZED;
    // Browsers take the first, and ask for a name and a password.
    response->more_headers = {
        {"WWW-Authenticate", "Basic realm=\"walpost\", charset=\"UTF-8\""},
        {"WWW-Authenticate", "Bearer realm=\"walpost\""},
    };
    response->body = "http.token is asked for: as bearer token, or as the password of any name\n";
    return false;
  }

  std::string Copy(std::string Server::*text) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return this->*text;
  }

  bool Route(std::string_view path, bool verbose, Response* response) {
    const std::shared_ptr<const Snapshot> snapshot = board_->Newest();
    if (path == "/") {
      response->type = "text/html; charset=utf-8";
      response->more_headers = {{"Content-Security-Policy", kPageMayLoad},
                                {"Referrer-Policy", "no-referrer"}};
      response->body = std::string(kPageHtml);
    } else if (path == "/page.css") {
      response->type = "text/css; charset=utf-8";
      response->body = std::string(kPageCss);
    } else if (path == "/page.js") {
      response->type = "text/javascript; charset=utf-8";
      response->body = std::string(kPageJs);
    } else if (path == "/livez" || path == "/healthz") {
      Live(snapshot.get(), response);
    } else if (path == "/readyz") {
      Ready(snapshot.get(), verbose, response);
    } else if (path == "/metrics") {
      response->type = "text/plain; version=0.0.4; charset=utf-8";
      response->body = metrics_.Of(snapshot, std::chrono::steady_clock::now());
    } else if (path == "/status") {
      response->type = "application/json";
      response->body = status_.Of(snapshot, std::chrono::steady_clock::now());
    } else if (path == "/history") {
      response->type = "application/json";
      response->body = history_.Of(snapshot, std::chrono::steady_clock::now());
    } else if (path == "/configuration") {
      response->body = Copy(&Server::configuration_);
    } else {
      return false;
    }
    return true;
  }

  // The loop alone: what PostgreSQL or Kafka do must not restart this process.
  void Live(const Snapshot* snapshot, Response* response) const {
    const auto now =
        std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    const bool live = snapshot == nullptr || now - snapshot->taken_at <= options_.live_within;
    response->code = live ? 200 : 503;
    response->body = live ? "ok\n" : "the loop has not turned for too long\n";
  }

  static void Ready(const Snapshot* snapshot, bool verbose, Response* response) {
    const base::State state = snapshot == nullptr ? base::State::kStarting : snapshot->state;
    const bool ready = state != base::State::kStarting && state != base::State::kHalted;
    response->code = ready ? 200 : 503;
    response->body = absl::StrFormat("%s: %s", ready ? "ok" : "not ready", base::StateName(state));
    if (state == base::State::kHalted) {
      response->body += absl::StrFormat(" (%s)", base::HaltReasonName(snapshot->halt_reason));
    }
    response->body += "\n";
    if (!verbose || snapshot == nullptr) {
      return;
    }
    response->body += absl::StrFormat("[%s] state %s\n", ready ? "+" : "-", base::StateName(state));
    response->body +=
        absl::StrFormat("[%s] source connected\n", snapshot->source_connected ? "+" : "-");
    response->body +=
        absl::StrFormat("[%s] sink connected\n", snapshot->sink_connected ? "+" : "-");
    if (state == base::State::kHalted) {
      response->body += base::Printable(snapshot->halt_detail) + "\n";
    }
  }

  const HttpOptions options_;
  const SnapshotBoard* const board_;
  Rendered metrics_{[this](const Snapshot& s) { return RenderMetrics(s, options_.version); }};
  Rendered status_{[this](const Snapshot& s) { return RenderStatusJson(s, options_.version); }};
  Rendered history_{[this](const Snapshot&) { return RenderHistoryJson(board_->LastHour()); }};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::string token_;
  std::string configuration_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // last: their threads use the rest
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              const SnapshotBoard* board) {
  auto server = std::make_unique<Server>(options, board);
  if (absl::Status status = server->Listen(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace walpost::observe
