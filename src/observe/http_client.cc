#include "observe/http_client.h"

#define CURL_DISABLE_TYPECHECK  // its checks are C
#include <curl/curl.h>

#include <memory>

#include "absl/strings/str_format.h"

namespace walpost::observe {
namespace {

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::size_t OnData(char* data, std::size_t, std::size_t size, void* user) {
  auto* const body = static_cast<std::string*>(user);
  if (body->size() + size > kAnswerBytesMax) {
    return 0;  // curl gives up
  }
  body->append(data, size);
  return size;
}

}  // namespace

absl::StatusOr<HttpAnswer> HttpGet(const std::string& url, std::chrono::milliseconds timeout,
                                   const std::string& token) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, CurlDeleter> curl(started == CURLE_OK ? curl_easy_init() : nullptr);
  if (curl == nullptr) {
    return absl::UnavailableError("libcurl does not start");
  }
  HttpAnswer answer;
  CURL* const c = curl.get();
  curl_easy_setopt(c, CURLOPT_URL, url.c_str());
  curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(c, CURLOPT_PROXY, "");
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_USERAGENT, "walpost");
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, OnData);
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer.body);
  if (!token.empty()) {
    curl_easy_setopt(c, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, token.c_str());
  }
  const CURLcode result = curl_easy_perform(c);
  if (result == CURLE_OPERATION_TIMEDOUT) {
    return absl::DeadlineExceededError(
        absl::StrFormat("no answer from %s within %d ms", WithoutUser(url), timeout.count()));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrFormat("nothing answers at %s: %s", WithoutUser(url), curl_easy_strerror(result)));
  }
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &answer.code);
  return answer;
}

std::string WithoutUser(const std::string& url) {
  if (url.find('@') == std::string::npos) {
    return url;
  }
  const std::unique_ptr<CURLU, UrlDeleter> parsed(curl_url());
  char* text = nullptr;
  if (parsed == nullptr ||
      curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), CURLU_GUESS_SCHEME) != CURLUE_OK ||
      curl_url_set(parsed.get(), CURLUPART_USER, nullptr, 0) != CURLUE_OK ||
      curl_url_set(parsed.get(), CURLUPART_PASSWORD, nullptr, 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_URL, &text, 0) != CURLUE_OK) {
    return "a URL that cannot be read";
  }
  std::string shown(text);
  curl_free(text);
  return shown;
}

absl::StatusOr<std::string> UrlOf(const std::string& listen) {
  if (listen.empty()) {
    return absl::InvalidArgumentError("http.listen is empty, so there is nothing to ask");
  }
  const std::size_t colon = listen.rfind(':');
  std::string host = colon == std::string::npos ? "" : listen.substr(0, colon);
  std::string port = colon == std::string::npos ? listen : listen.substr(colon + 1);
  if (!port.empty() && port.front() == '+') {  // a port of IPv4 and IPv6
    port.erase(0, 1);
  }
  if (port == "0") {
    return absl::InvalidArgumentError(
        "http.listen has port 0, so where walpost listens is not known: give --url");
  }
  if (host.empty() || host == "0.0.0.0") {
    host = "127.0.0.1";
  } else if (host == "[::]") {
    host = "[::1]";
  }
  return absl::StrFormat("http://%s:%s", host, port);
}

}  // namespace walpost::observe
