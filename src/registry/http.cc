#include "registry/http.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"

#define CURL_DISABLE_TYPECHECK  // its checks are C

namespace walpost::registry {
namespace {

constexpr std::chrono::seconds kFileTimeout{10};

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}

  ~OpenFile() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status ReadError(int error) {
  const std::string message = absl::StrFormat("cannot be read: %s", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
}

// False: not in time.
bool AwaitMore(int fd, std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd readable{fd, POLLIN, 0};
  return left.count() > 0 &&
         (poll(&readable, 1, static_cast<int>(left.count())) > 0 || errno == EINTR);
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t bytes_max) {
  // Without O_NONBLOCK a pipe that nobody writes to is waited for here.
  const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) {
    return ReadError(errno);
  }
  const auto deadline = std::chrono::steady_clock::now() + kFileTimeout;
  std::string content;
  std::array<char, 4096> chunk{};
  while (content.size() <= bytes_max) {
    const ssize_t size = read(file.fd(), chunk.data(), chunk.size());
    const int error = errno;
    if (size == 0) {
      return content;
    }
    if (size > 0) {
      content.append(chunk.data(), static_cast<std::size_t>(size));
    } else if (error != EAGAIN && error != EINTR) {  // a folder opens, but does not read
      return ReadError(error);
    } else if (!AwaitMore(file.fd(), deadline)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("cannot be read: it is a pipe or a device, and did not end within %d s",
                          std::chrono::seconds(kFileTimeout).count()));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("cannot be read: it has more than %d bytes", bytes_max));
}

namespace {

constexpr char kContentType[] = "application/vnd.schemaregistry.v1+json";

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

struct Received {
  std::string body;
  bool too_large = false;
};

std::size_t OnData(char* data, std::size_t, std::size_t size, void* user) {
  auto* const received = static_cast<Received*>(user);
  if (received->body.size() + size > Http::kAnswerBytesMax) {
    received->too_large = true;
    return 0;  // curl gives up
  }
  received->body.append(data, size);
  return size;
}

// Without figures that differ each time: the same trouble is logged once.
std::string TextOf(CURLcode result, const char* detail) {
  const bool detailed =
      detail[0] != '\0' && result != CURLE_COULDNT_CONNECT && result != CURLE_OPERATION_TIMEDOUT;
  return detailed ? detail : curl_easy_strerror(result);
}

// A node that cannot answer now; another may.
bool IsPassing(long code) { return code >= 500 || code == 429 || code == 408; }

}  // namespace

struct Http::Impl {
  absl::StatusOr<HttpAnswer> Send(const std::string& path, const std::string* body);
  absl::StatusOr<HttpAnswer> SendTo(const std::string& url, const std::string& path,
                                    const std::string* body);
  void Prepare();

  RegistryOptions options;
  std::size_t first = 0;  // of the URLs: the one that answered last
  std::unique_ptr<CURL, CurlDeleter> curl;
  std::unique_ptr<curl_slist, ListDeleter> headers;
};

Http::Http(RegistryOptions options) : impl_(std::make_unique<Impl>()) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)started;  // without memory only; then there is no handle either
  impl_->options = std::move(options);
}

Http::~Http() = default;
Http::Http(Http&&) noexcept = default;
Http& Http::operator=(Http&&) noexcept = default;

std::string Http::Encode(const std::string& segment) {
  std::string encoded;
  for (const char c : segment) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    encoded +=
        plain ? std::string(1, c)
              : absl::StrFormat("%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return encoded;
}

absl::StatusOr<HttpAnswer> Http::Get(const std::string& path) { return impl_->Send(path, nullptr); }

absl::StatusOr<HttpAnswer> Http::Post(const std::string& path, const std::string& body) {
  return impl_->Send(path, &body);
}

absl::StatusOr<HttpAnswer> Http::Impl::Send(const std::string& path, const std::string* body) {
  absl::Status failures = absl::UnavailableError("schema_registry.url is empty");
  for (std::size_t i = 0; i < options.urls.size(); ++i) {
    const std::size_t index = (first + i) % options.urls.size();
    const std::string& url = options.urls[index];
    absl::StatusOr<HttpAnswer> answer = SendTo(url, path, body);
    if (answer.ok() && !IsPassing(answer->code)) {
      first = index;
      return answer;
    }
    if (!answer.ok() && !absl::IsUnavailable(answer.status())) {
      return answer;
    }
    const std::string what = answer.ok() ? absl::StrFormat("the Schema Registry at %s answers %d",
                                                           answer->url, answer->code)
                                         : std::string(answer.status().message());
    failures = absl::UnavailableError(
        i == 0 ? what : absl::StrFormat("%s; %s", std::string(failures.message()), what));
  }
  return failures;
}

void Http::Impl::Prepare() {
  curl.reset(curl_easy_init());
  headers.reset(curl_slist_append(nullptr, absl::StrFormat("Accept: %s", kContentType).c_str()));
  curl_slist_append(headers.get(), absl::StrFormat("Content-Type: %s", kContentType).c_str());
  CURL* const c = curl.get();
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(c, CURLOPT_PROXY, "");  // none of the environment either
  curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(c, CURLOPT_USERAGENT, "walpost");
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout.count()));
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, OnData);
  if (!options.token.empty()) {
    curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, options.token.c_str());
  } else if (!options.username.empty()) {
    curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    curl_easy_setopt(c, CURLOPT_USERNAME, options.username.c_str());
    curl_easy_setopt(c, CURLOPT_PASSWORD, options.password.c_str());
  }
  const std::pair<CURLoption, const std::string*> files[] = {
      {CURLOPT_CAINFO, &options.ca_file},
      {CURLOPT_SSLCERT, &options.certificate_file},
      {CURLOPT_SSLKEY, &options.key_file}};
  for (const auto& [option, file] : files) {
    if (!file->empty()) {
      curl_easy_setopt(c, option, file->c_str());
    }
  }
}

absl::StatusOr<HttpAnswer> Http::Impl::SendTo(const std::string& url, const std::string& path,
                                              const std::string* body) {
  if (curl == nullptr) {
    Prepare();
  }
  CURL* const c = curl.get();
  Received received;
  std::array<char, CURL_ERROR_SIZE> error = {};
  curl_easy_setopt(c, CURLOPT_URL, (url + path).c_str());
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &received);
  curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error.data());
  if (body != nullptr) {
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, body->data());
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
  } else {
    curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
  }
  const std::string shown = ShownUrl(url, options);
  const CURLcode result = curl_easy_perform(c);
  curl_easy_setopt(c, CURLOPT_ERRORBUFFER, nullptr);
  if (received.too_large) {
    return absl::UnavailableError(
        absl::StrFormat("the Schema Registry at %s answers with more than %u bytes: is it one?",
                        shown, kAnswerBytesMax));
  }
  if (result != CURLE_OK) {
    curl.reset();  // a file that was wrong may be fixed
    // The detail may name the host, which may be too short to be found in it.
    const char* const detail = shown == url ? error.data() : "";
    return absl::UnavailableError(
        absl::StrFormat("the Schema Registry at %s cannot be reached: %s", shown,
                        base::HideRuns(TextOf(result, detail), options.secrets)));
  }
  HttpAnswer answer;
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &answer.code);
  answer.body = std::move(received.body);
  answer.url = shown;
  return answer;
}

std::string ShownUrl(const std::string& url, const RegistryOptions& options) {
  return base::HideRuns(url, options.secrets);
}

std::string ClearTextUrl(const RegistryOptions& options) {
  constexpr std::string_view kClear = "http://";
  for (const std::string& url : options.urls) {
    if (url.rfind(kClear, 0) != 0) {
      continue;
    }
    const std::string_view rest = std::string_view(url).substr(kClear.size());
    const std::size_t bracket = rest.find(']');
    const std::size_t end = bracket != std::string_view::npos && rest[0] == '['
                                ? bracket + 1
                                : rest.find_first_of(":/");
    if (!base::IsLoopbackHost(rest.substr(0, end))) {
      return url;
    }
  }
  return "";
}

std::string ClearTextWarning(const RegistryOptions& options) {
  const std::string url = ClearTextUrl(options);
  return url.empty()
             ? ""
             : absl::StrFormat(
                   "the Schema Registry is asked in clear text at %s: whoever is on the way can "
                   "change schemas' ids, and take passwords; write https:// in "
                   "schema_registry.url",
                   ShownUrl(url, options));
}

}  // namespace walpost::registry
