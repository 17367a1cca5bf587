#include "pgoutput/relation_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "unit/pgoutput/sample_messages.h"

namespace walpost::pgoutput {
namespace {

TEST(RelationCacheTest, UnknownRelationIsNull) {
  RelationCache cache;
  cache.Put(SampleRelation());
  EXPECT_EQ(cache.Find(RelationId{1}), nullptr);
}

TEST(RelationCacheTest, RelationIsFoundByItsId) {
  RelationCache cache;
  cache.Put(SampleRelation());
  Relation other = SampleRelation();
  other.id = RelationId{1};
  other.name = "other";
  cache.Put(other);
  EXPECT_EQ(cache.Find(RelationId{16400})->relation.name, "events");
  EXPECT_EQ(cache.Find(RelationId{1})->relation.name, "other");
}

TEST(RelationCacheTest, LaterRelationOfTheSameIdReplacesTheEarlierAndIsNewer) {
  RelationCache cache;
  const std::uint64_t first = cache.Put(SampleRelation()).version;
  Relation changed = SampleRelation();
  changed.columns.push_back({"extra", 25, -1, false});
  const RelationCache::Entry& entry = cache.Put(changed);
  EXPECT_NE(entry.version, first);
  EXPECT_EQ(cache.Find(changed.id), &entry);
  EXPECT_EQ(entry.relation.columns.size(), 4U);
}

// A binding made before a reconnect must look stale after it.
TEST(RelationCacheTest, VersionsStayUniqueOverClear) {
  RelationCache cache;
  std::set<std::uint64_t> versions;
  for (int i = 0; i < 10; ++i) {
    versions.insert(cache.Put(SampleRelation()).version);
    cache.Clear();
    EXPECT_EQ(cache.Find(RelationId{16400}), nullptr);
  }
  EXPECT_EQ(versions.size(), 10U);
}

}  // namespace
}  // namespace walpost::pgoutput
