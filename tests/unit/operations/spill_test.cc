#include "operations/spill.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace walpost::operations {
namespace {

using Entries = std::map<std::string, std::vector<std::string>, std::less<>>;

Spill MakeSpill() {
  auto spill = Spill::Create("");
  EXPECT_TRUE(spill.ok()) << spill.status();
  return *std::move(spill);
}

Entries ReadPart(Spill* spill, std::size_t part) {
  Entries entries;
  const absl::Status read = spill->ForEach(part, [&](std::string_view key, std::string_view data) {
    entries[std::string(key)].emplace_back(data);
    return absl::OkStatus();
  });
  EXPECT_TRUE(read.ok()) << read;
  return entries;
}

TEST(SpillTest, EntriesOfOneKeyAreInOnePartInTheirOrder) {
  Spill spill = MakeSpill();
  for (int round = 0; round < 3; ++round) {
    for (int key = 0; key < 5'000; ++key) {
      ASSERT_TRUE(spill.Add("key " + std::to_string(key), std::to_string(round)).ok());
    }
  }
  std::size_t keys = 0;
  for (std::size_t part = 0; part < Spill::kParts; ++part) {
    const Entries entries = ReadPart(&spill, part);
    for (const auto& [key, data] : entries) {
      EXPECT_EQ(data, (std::vector<std::string>{"0", "1", "2"})) << key;
    }
    keys += entries.size();
  }
  EXPECT_EQ(keys, 5'000U);
}

TEST(SpillTest, APartIsReadAgainAndAddedTo) {
  Spill spill = MakeSpill();
  ASSERT_TRUE(spill.Add("key", "first").ok());
  std::size_t part = 0;
  while (ReadPart(&spill, part).empty()) {
    ++part;
  }
  ASSERT_TRUE(spill.Add("key", "second").ok());
  EXPECT_EQ(ReadPart(&spill, part)["key"], (std::vector<std::string>{"first", "second"}));
}

TEST(SpillTest, KeysAndDataMayBeAnyBytesAndEmpty) {
  Spill spill = MakeSpill();
  const std::string bytes("\0\n\xff", 3);
  ASSERT_TRUE(spill.Add(bytes, "").ok());
  ASSERT_TRUE(spill.Add("", bytes).ok());
  Entries all;
  for (std::size_t part = 0; part < Spill::kParts; ++part) {
    all.merge(ReadPart(&spill, part));
  }
  EXPECT_EQ(all, (Entries{{bytes, {""}}, {"", {bytes}}}));
}

TEST(SpillTest, AKeyThatIsTooLongIsRefused) {
  Spill spill = MakeSpill();
  EXPECT_TRUE(absl::IsInvalidArgument(spill.Add(std::string(65'536, 'k'), "")));
}

TEST(SpillTest, AFolderThatIsNotThereIsNamed) {
  const auto spill = Spill::Create("/nowhere");
  ASSERT_FALSE(spill.ok());
  EXPECT_NE(std::string(spill.status().message()).find("/nowhere"), std::string::npos);
}

TEST(SpillTest, AnErrorOfTheCallbackEndsTheReading) {
  Spill spill = MakeSpill();
  ASSERT_TRUE(spill.Add("key", "").ok());
  std::size_t failed = 0;
  for (std::size_t part = 0; part < Spill::kParts; ++part) {
    const absl::Status status = spill.ForEach(
        part, [](std::string_view, std::string_view) { return absl::CancelledError(); });
    failed += absl::IsCancelled(status) ? 1 : 0;
  }
  EXPECT_EQ(failed, 1U);
}

}  // namespace
}  // namespace walpost::operations
