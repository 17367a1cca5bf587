#include "observe/http_server.h"

#include <civetweb.h>

#include <array>
#include <cstring>
#include <future>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "observe/history.h"
#include "observe/http_access.h"
#include "observe/page.h"
#include "observe/rendered.h"

namespace walpost::observe {
namespace {

// What the page may load: its own two files, and what it asks this server for.
constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'; connect-src "
    "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n";

// A connection that asks nothing occupies a thread for up to 5 s, and browsers open some ahead of need.
constexpr const char* kThreads = "16";

// Browsers take the first, and ask for a name and a password.
constexpr std::string_view kLoginHeaders =
    "WWW-Authenticate: Basic realm=\"walpost\", charset=\"UTF-8\"\r\n"
    "WWW-Authenticate: Bearer realm=\"walpost\"\r\n";

struct Response {
  int code = 200;
  std::string_view type = "text/plain; charset=utf-8";
  std::string_view more_headers;
  std::string body;
};

std::string_view Reason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 401:
      return "Unauthorized";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

// Probes of an orchestrator have no secrets.
bool IsOpenToAll(std::string_view path, bool verbose) {
  return path == "/livez" || path == "/healthz" || (path == "/readyz" && !verbose);
}

class Server : public HttpServer {
 public:
  Server(HttpOptions options, const SnapshotBoard* board)
      : options_(std::move(options)),
        board_(board),
        token_(options_.token),
        configuration_(options_.configuration) {}

  // civetweb looks only every two seconds, or at a new connection, whether it should stop. A
  // stopping process has better things to do, so it gets connections until it has noticed.
  ~Server() override {
    if (context_ == nullptr) {
      return;
    }
    std::future<void> stopped = std::async(std::launch::async, [this] { mg_stop(context_); });
    const std::string host = OwnHost();
    while (stopped.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
      std::array<char, 100> error{};
      mg_connection* nudge = mg_connect_client(host.c_str(), port_, 0, error.data(), error.size());
      if (nudge != nullptr) {
        mg_close_connection(nudge);
      }
    }
  }

  absl::Status Listen() {
    if (options_.listen.empty()) {
      return absl::OkStatus();
    }
    const char* settings[] = {"listening_ports",
                              options_.listen.c_str(),
                              "num_threads",
                              kThreads,
                              "request_timeout_ms",
                              "5000",
                              "enable_keep_alive",
                              "no",
                              nullptr};
    mg_callbacks callbacks{};
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // not to stderr
    context_ = mg_start(&callbacks, this, settings);
    if (context_ == nullptr) {
      return absl::UnavailableError(absl::StrFormat(
          "http.listen: cannot listen on %s: is the port in use, and the address local?",
          options_.listen));
    }
    mg_set_request_handler(context_, "/", &Server::Handle, this);
    mg_server_port port{};
    if (mg_get_server_ports(context_, 1, &port) == 1) {
      port_ = port.port;
    }
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Reconfigure(const HttpOptions& options) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    token_ = options.token;
    configuration_ = options.configuration;
  }

 private:
  // Where this process reaches what it listens on.
  std::string OwnHost() const {
    const std::size_t colon = options_.listen.rfind(':');
    std::string host = colon == std::string::npos ? "" : options_.listen.substr(0, colon);
    if (!host.empty() && host.front() == '[') {
      host = host.substr(1, host.size() - 2);
    }
    return host.empty() || host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host;
  }

  static int Handle(mg_connection* connection, void* self) {
    return static_cast<Server*>(self)->Answer(connection);
  }

  int Answer(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    const std::string_view method = request->request_method;
    const std::string_view query = request->query_string == nullptr ? "" : request->query_string;
    const std::string_view path = request->local_uri == nullptr ? "" : request->local_uri;
    const bool verbose = query.find("verbose") != std::string_view::npos;
    Response response;
    if (!IsOpenToAll(path, verbose) && !MayAsk(connection)) {
      response.code = 401;
      response.more_headers = kLoginHeaders;
      response.body = "http.token is asked for: as bearer token, or as the password of any name\n";
    } else if (method != "GET" && method != "HEAD") {
      response.code = 405;
      response.more_headers = "Allow: GET, HEAD\r\n";
      response.body = "only GET and HEAD\n";
    } else if (!Route(path, verbose, &response)) {
      mg_send_http_error(
          connection, 404, "%s",
          "not found; try / /status /history /configuration /metrics /livez /readyz");
      return 404;
    }
    mg_printf(
        connection,
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n%sConnection: close\r\n\r\n",
        response.code, std::string(Reason(response.code)).c_str(),
        std::string(response.type).c_str(), response.body.size(),
        std::string(response.more_headers).c_str());
    if (method != "HEAD") {
      mg_write(connection, response.body.data(), response.body.size());
    }
    return response.code;
  }

  bool MayAsk(const mg_connection* connection) const {
    const std::string token = Copy(&Server::token_);
    const char* authorization = mg_get_header(connection, "Authorization");
    return token.empty() || Admits(authorization == nullptr ? "" : authorization, token);
  }

  std::string Copy(std::string Server::*text) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return this->*text;
  }

  bool Route(std::string_view path, bool verbose, Response* response) {
    const std::shared_ptr<const Snapshot> snapshot = board_->Newest();
    if (path == "/") {
      response->type = "text/html; charset=utf-8";
      response->more_headers = kPageHeaders;
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
      response->body += snapshot->halt_detail + "\n";
    }
  }

  const HttpOptions options_;
  const SnapshotBoard* const board_;
  Rendered metrics_{[this](const Snapshot& s) { return RenderMetrics(s, options_.version); }};
  Rendered status_{[this](const Snapshot& s) { return RenderStatusJson(s, options_.version); }};
  Rendered history_{[this](const Snapshot&) { return RenderHistoryJson(board_->LastHour()); }};
  mg_context* context_ = nullptr;
  int port_ = 0;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::string token_;
  std::string configuration_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              const SnapshotBoard* board) {
  static const unsigned initialized = mg_init_library(0);
  (void)initialized;
  auto server = std::make_unique<Server>(options, board);
  if (absl::Status status = server->Listen(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace walpost::observe
