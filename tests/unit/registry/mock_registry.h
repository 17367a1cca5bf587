// MockRegistry - an HTTP server on loopback that answers what the test says, and remembers what it
// was asked.
// Thread: any; answers come from threads of its own.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

struct mg_connection;
struct mg_context;

namespace walpost::registry {

class MockRegistry {
 public:
  struct Request {
    std::string line;  // "GET /schemas/types"
    std::string body;
    std::string authorization;
  };

  MockRegistry();
  ~MockRegistry();
  MockRegistry(const MockRegistry&) = delete;
  MockRegistry& operator=(const MockRegistry&) = delete;

  std::string url() const;

  // From now on. `line` without the query, and decoded; what is not listed is answered with 404,
  // 40403.
  void Answer(const std::string& line, int code, const std::string& body);
  // The same where the request's body has `part` in it, which comes before the others.
  void AnswerTo(const std::string& line, const std::string& part, int code,
                const std::string& body);
  void AnswerAll(int code, const std::string& body);

  std::vector<Request> requests() const;

  void Forget();

 private:
  struct Answers {
    std::string part;
    int code = 0;
    std::string body;
  };

  static int Handle(mg_connection* connection, void* self);

  Answers Find(const Request& request) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::vector<Answers>> answers_;
  std::vector<Answers> all_;
  std::vector<Request> requests_;
  mg_context* context_ = nullptr;
};

}  // namespace walpost::registry
