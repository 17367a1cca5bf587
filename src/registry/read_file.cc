#include "registry/read_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_format.h"

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

}  // namespace walpost::registry
