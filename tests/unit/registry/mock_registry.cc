#include "unit/registry/mock_registry.h"

#include <civetweb.h>
#include <glog/logging.h>

#include <array>

namespace walpost::registry {

MockRegistry::MockRegistry() {
  const char* options[] = {"listening_ports", "127.0.0.1:0", "num_threads", "2", nullptr};
  const mg_callbacks callbacks = {};
  context_ = mg_start(&callbacks, nullptr, options);
  CHECK(context_ != nullptr);
  mg_set_request_handler(context_, "/", Handle, this);
}

MockRegistry::~MockRegistry() { mg_stop(context_); }

std::string MockRegistry::url() const {
  mg_server_port port = {};
  CHECK_EQ(mg_get_server_ports(context_, 1, &port), 1);
  return "http://127.0.0.1:" + std::to_string(port.port);
}

void MockRegistry::Answer(const std::string& line, int code, const std::string& body) {
  AnswerTo(line, "", code, body);
}

void MockRegistry::AnswerTo(const std::string& line, const std::string& part, int code,
                            const std::string& body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Answers>& of_line = answers_[line];
  of_line.insert(part.empty() ? of_line.end() : of_line.begin(), Answers{part, code, body});
}

void MockRegistry::AnswerAll(int code, const std::string& body) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_ = {Answers{"", code, body}};
}

std::vector<MockRegistry::Request> MockRegistry::requests() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

void MockRegistry::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  answers_.clear();
  all_.clear();
  requests_.clear();
}

MockRegistry::Answers MockRegistry::Find(const Request& request) const {
  if (!all_.empty()) {
    return all_.front();
  }
  const auto found = answers_.find(request.line.substr(0, request.line.find('?')));
  if (found != answers_.end()) {
    for (const Answers& answer : found->second) {
      if (request.body.find(answer.part) != std::string::npos) {
        return answer;
      }
    }
  }
  return {"", 404, R"({"error_code": 40403, "message": "Schema not found"})"};
}

int MockRegistry::Handle(mg_connection* connection, void* self) {
  auto* const mock = static_cast<MockRegistry*>(self);
  const mg_request_info* const info = mg_get_request_info(connection);
  Request request;
  request.line = std::string(info->request_method) + " " + info->request_uri;
  if (info->query_string != nullptr) {
    request.line += std::string("?") + info->query_string;
  }
  const char* const authorization = mg_get_header(connection, "Authorization");
  request.authorization = authorization == nullptr ? "" : authorization;
  std::array<char, 4096> part = {};
  for (int read = 0; (read = mg_read(connection, part.data(), part.size())) > 0;) {
    request.body.append(part.data(), static_cast<std::size_t>(read));
  }
  Answers answer;
  {
    const std::lock_guard<std::mutex> lock(mock->mutex_);
    mock->requests_.push_back(request);
    answer = mock->Find(request);
  }
  mg_printf(connection, "HTTP/1.1 %d Answer\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
            answer.code, answer.body.size());
  mg_write(connection, answer.body.data(), answer.body.size());
  return answer.code;
}

}  // namespace walpost::registry
