#include "registry/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace walpost::registry {
namespace {

TEST(ReadFileTest, PipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([fd = ends[1]] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(write(fd, "0123456789", 10), 10);
    }
    close(fd);
  });
  const auto content = ReadFile("/dev/fd/" + std::to_string(ends[0]), 1'000);
  writer.join();
  close(ends[0]);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->size(), 1'000U);
}

TEST(ReadFileTest, FileIsReadUpToItsLimit) {
  const std::string path = ::testing::TempDir() + "/read_file_test-" + std::to_string(getpid());
  std::ofstream(path) << std::string(10'000, 'x');
  EXPECT_EQ(ReadFile(path, 10'000)->size(), 10'000U);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(path, 9'999).status()));
  unlink(path.c_str());
}

TEST(ReadFileTest, WhatIsNotThereIsDistinguishedFromWhatCannotBeRead) {
  EXPECT_TRUE(absl::IsNotFound(ReadFile("/no/such/file", 10).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(::testing::TempDir(), 10).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile("/dev/zero", 10).status()));
}

}  // namespace
}  // namespace walpost::registry
