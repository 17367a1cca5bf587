// Http - requests to one of several URLs of the same service.
// Why: a registry of several nodes answers the same at each, so the next one is asked where one is
//   away; and the one that answered last is asked first.
// Thread: one owner; blocking, `timeout` for each URL.
// Units/limits: answers of up to kAnswerBytesMax.
// Errors: kUnavailable: no URL could be reached, or all say 5xx or 429; what it says is for an
//   operator. kInvalidArgument: a file of the options cannot be used. Any other answer, also an error,
//   is an HttpAnswer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "registry/options.h"

namespace walpost::registry {

struct HttpAnswer {
  long code = 0;
  std::string body;
  std::string url;  // that was asked, without secrets
};

class Http {
 public:
  static constexpr std::size_t kAnswerBytesMax = std::size_t{4} * 1024 * 1024;

  explicit Http(RegistryOptions options);
  ~Http();
  Http(Http&&) noexcept;
  Http& operator=(Http&&) noexcept;

  // `path` begins with a slash, and is encoded.
  absl::StatusOr<HttpAnswer> Get(const std::string& path);
  absl::StatusOr<HttpAnswer> Post(const std::string& path, const std::string& body);

  // One segment of a path.
  static std::string Encode(const std::string& segment);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walpost::registry
