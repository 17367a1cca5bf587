#include "observe/http_server.h"

#include <civetweb.h>

#include <array>
#include <cstring>
#include <future>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"

namespace walpost::observe {
namespace {

// The whole page of version 1: the status as it is, refreshed every second.
constexpr std::string_view kPage =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
    "content='width=device-width'>"
    "<title>walpost</title><style>body{font:14px monospace;margin:2em;max-width:70em}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8cf}}</style>"
    "<h1>walpost</h1><p><a href=/status>/status</a> <a href=/metrics>/metrics</a> <a "
    "href='/readyz?verbose'>/readyz</a>"
    "<pre id=s aria-live=polite>loading</pre><script>async function f(){try{"
    "document.getElementById('s').textContent=await(await fetch('/status')).text()}catch(e){"
    "document.getElementById('s').textContent='not reachable: "
    "'+e}setTimeout(f,1000)}f()</script></html>\n";

struct Response {
  int code = 200;
  std::string_view type = "text/plain; charset=utf-8";
  std::string_view more_headers;
  std::string body;
};

std::string_view Reason(int code) {
  return code == 200 ? "OK" : code == 405 ? "Method Not Allowed" : "Service Unavailable";
}

class Server : public HttpServer {
 public:
  Server(HttpOptions options, const SnapshotBoard* board)
      : options_(std::move(options)), board_(board) {}

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
                              "4",
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
    return static_cast<const Server*>(self)->Answer(connection);
  }

  int Answer(mg_connection* connection) const {
    const mg_request_info* request = mg_get_request_info(connection);
    const std::string_view method = request->request_method;
    const std::string_view query = request->query_string == nullptr ? "" : request->query_string;
    Response response;
    if (method != "GET" && method != "HEAD") {
      response.code = 405;
      response.more_headers = "Allow: GET, HEAD\r\n";
      response.body = "only GET and HEAD\n";
    } else if (!Route(request->local_uri, query.find("verbose") != std::string_view::npos,
                      &response)) {
      mg_send_http_error(connection, 404, "%s", "not found; try / /status /metrics /livez /readyz");
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

  bool Route(std::string_view path, bool verbose, Response* response) const {
    const std::shared_ptr<const Snapshot> snapshot = board_->Newest();
    if (path == "/") {
      response->type = "text/html; charset=utf-8";
      response->body = std::string(kPage);
    } else if (path == "/livez" || path == "/healthz") {
      Live(snapshot.get(), response);
    } else if (path == "/readyz") {
      Ready(snapshot.get(), verbose, response);
    } else if (path == "/metrics") {
      response->type = "text/plain; version=0.0.4; charset=utf-8";
      response->body = RenderMetrics(snapshot ? *snapshot : Snapshot(), options_.version);
    } else if (path == "/status") {
      response->type = "application/json";
      response->body = RenderStatusJson(snapshot ? *snapshot : Snapshot(), options_.version);
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
  mg_context* context_ = nullptr;
  int port_ = 0;
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
