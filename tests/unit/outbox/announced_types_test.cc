#include "outbox/announced_types.h"

#include <gtest/gtest.h>

#include "outbox/column_value.h"
#include "outbox/presets.h"

namespace walpost::outbox {
namespace {

constexpr std::uint32_t kDomain = 16390;

TEST(AnnouncedTypesTest, NoMoreAreKeptThanATableHasColumns) {
  AnnouncedTypes types;
  for (std::uint32_t i = 0; i <= AnnouncedTypes::kMax; ++i) {
    types.Add({kDomain + i, "", "uuid"});
  }
  TableMapper mapper(*PresetOptions("walpost"));
  types.GiveTo(&mapper);
  EXPECT_EQ(mapper.ReadableType(kDomain + AnnouncedTypes::kMax - 1), type_oid::kUuid);
  EXPECT_EQ(mapper.ReadableType(kDomain + AnnouncedTypes::kMax), 0U);
}

TEST(AnnouncedTypesTest, MapperKeepsThoseOfItsNewestAnnouncement) {
  AnnouncedTypes types;
  TableMapper mapper(*PresetOptions("walpost"));
  for (std::uint32_t i = 0; i < 10; ++i) {
    types.Add({kDomain + i, "", "uuid"});
    types.GiveTo(&mapper);
  }
  EXPECT_EQ(mapper.ReadableType(kDomain), 0U);
  EXPECT_EQ(mapper.ReadableType(kDomain + 9), type_oid::kUuid);
}

}  // namespace
}  // namespace walpost::outbox
