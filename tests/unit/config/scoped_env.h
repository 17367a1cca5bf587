// ScopedEnv, TemporaryFile - a variable or a file for the length of one test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace walpost::config {

class ScopedEnv {
 public:
  // No value: the variable is taken away.
  ScopedEnv(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str()); before != nullptr) {
      before_ = before;
    }
    Put(value);
  }

  ~ScopedEnv() { Put(before_); }

  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void Put(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }

  const std::string name_;
  std::optional<std::string> before_;
};

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(::testing::TempDir() + "walpost-XXXXXX") {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    close(fd);
    std::ofstream(path_) << content;
  }

  ~TemporaryFile() { unlink(path_.c_str()); }

  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace walpost::config
