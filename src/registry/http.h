// Http - requests to one of several URLs of the same service.
// Why: a registry of several nodes answers the same at each, so the next one is asked where one is
//   away; and the one that answered last is asked first.
// Thread: one owner; blocking, `timeout` for each URL.
// Units/limits: answers of up to kAnswerBytesMax.
// Errors: kUnavailable: no URL could be reached, or all say 5xx or 429; what it says is for an
//   operator. kInvalidArgument: a file of the options cannot be used. Any other answer, also an
//   error, is an HttpAnswer.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::registry {

// RegistryOptions - where the Schema Registry is, and who asks. Plain data, filled in by config.
struct RegistryOptions {
  std::vector<std::string> urls;  // of one registry, tried in turn; empty = there is none
  std::string username;
  std::string password;
  std::string token;             // bearer, instead of the two
  std::string ca_file;           // empty = those of the system
  std::string certificate_file;  // of the client
  std::string key_file;
  std::chrono::milliseconds timeout{5'000};    // of each request
  std::chrono::milliseconds refresh{300'000};  // of schemas that may change
  std::vector<std::string> secrets;            // what is shown of a URL has no part of these
};

// ReadFile - the whole of a file, or of a pipe that ends in time: a configuration, a secret,
// descriptors.
// Why: a path that an operator gives may lead to a pipe that nobody writes to, or to a device
//   without an end. It stands here because `config` reads files, too, and may use this module; the
//   core does no I/O.
// Thread: free functions; blocking.
// Units/limits: 10 s for what is no plain file, and bytes as the caller says.
// Errors: kNotFound when there is none, kInvalidArgument when it cannot be read or is larger; the
//   message says why and leaves it to the caller to name the file.
absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t bytes_max);

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

// ShownUrl - a URL for a message, with *** for the parts that are secret: it may be from a file.
// Thread: any.
std::string ShownUrl(const std::string& url, const RegistryOptions& options);

// Encryption of the connections to a Schema Registry: https, or not.
// Thread: any.

// The first URL that is asked in clear text over a network; empty = none.
std::string ClearTextUrl(const RegistryOptions& options);

// A line for an operator about it; empty = none.
std::string ClearTextWarning(const RegistryOptions& options);

}  // namespace walpost::registry
