// HttpGet - one question to a running walpost, for the verbs that ask it.
// Thread: any; blocking, at most `timeout` in all.
// Units/limits: answers of up to kAnswerBytesMax. Proxies of the environment are passed by: what is
//   asked is on this host or beside it. Redirects are not followed: the token is for whom was
//   asked.
// Errors: kUnavailable: nobody answers; kDeadlineExceeded: not in time. Both say what was asked, as
// WithoutUser.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::observe {

// Admits, ParseListen, IsOwnHost, IsLoopbackOnly - who may ask the HTTP server, and where.
// Why: one secret in two forms. Scrapers, curl and our own verbs send a bearer token; a browser can
//   only ask for a name and a password, so the token is taken as the password of any name, too.
// Thread: free functions; pure.
// Source: RFC 6750 (bearer), RFC 7617 (basic).

// `authorization` is the request's header of that name, empty when it has none. How long it takes
// reveals nothing about `token`, which must not be empty.
bool Admits(std::string_view authorization, std::string_view token);

struct ListenAddress {
  std::string host;  // without brackets; empty = all IPv4 addresses
  std::string port;
};

// Of http.listen: "127.0.0.1:9464", "[::1]:9464", "9464", several with commas between them. Empty =
// none.
absl::StatusOr<std::vector<ListenAddress>> ParseListen(std::string_view listen);

// Whether `host`, a request's header of that name, can only mean this server: an address, one of
// `names`, or a name that no foreign site can have (one without a dot, or under .local, .internal,
// .localhost, .svc, .cluster.local). A request without the header comes from no browser.
bool IsOwnHost(std::string_view host, const std::vector<std::string>& names);

// Whether nobody but this host reaches what listens on `listen` (http.listen). So does an empty
// one.
bool IsLoopbackOnly(std::string_view listen);

// Where that is not so and there is no token: what to do.
std::string OpenToAll(std::string_view listen);

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

// Where the same host reaches what listens on `listen` (http.listen): "http://127.0.0.1:9464". Of
// several addresses the first. kInvalidArgument when that cannot be known: it is empty, or its port
// is 0.
absl::StatusOr<std::string> UrlOf(const std::string& listen);

}  // namespace walpost::observe
