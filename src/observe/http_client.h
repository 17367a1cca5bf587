// HttpGet - one question to a running walpost, for the verbs that ask it.
// Thread: any; blocking, at most `timeout` in all.
// Units/limits: answers of up to kAnswerBytesMax. Proxies of the environment are passed by: what is asked
//   is on this host or beside it. Redirects are not followed: the token is for whom was asked.
// Errors: kUnavailable: nobody answers; kDeadlineExceeded: not in time. Both say what was asked, as WithoutUser.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace walpost::observe {

inline constexpr std::size_t kAnswerBytesMax = std::size_t{16} * 1024 * 1024;

struct HttpAnswer {
  long code = 0;
  std::string body;
};

// `token` is http.token; empty = there is none.
absl::StatusOr<HttpAnswer> HttpGet(const std::string& url, std::chrono::milliseconds timeout,
                                   const std::string& token = "");

// `url` as it may be shown: without user and password.
std::string WithoutUser(const std::string& url);

// Where the same host reaches what listens on `listen` (http.listen): "http://127.0.0.1:9464".
// kInvalidArgument when that cannot be known: it is empty, or its port is 0.
absl::StatusOr<std::string> UrlOf(const std::string& listen);

}  // namespace walpost::observe
