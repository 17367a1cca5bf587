#include "operations/reconcile/audit.h"

#include <gtest/gtest.h>

namespace walpost::operations {
namespace {

ReconciledTopic Whole() {
  ReconciledTopic topic;
  topic.name = "orders";
  return topic;
}

Reconciled Absent() {
  Reconciled compared;
  compared.row.id = "event-1";
  compared.row.at_ms = 1'000;
  return compared;
}

TEST(AuditFindingTest, InTheTopicIsFineWhateverElseIsKnown) {
  Reconciled there = Absent();
  there.in_topic = true;
  there.too_large = true;
  there.fate = DeadLetterFate::kDeadLettered;
  EXPECT_EQ(FindingOn(there, Whole(), /*confirmed=*/false), Finding::kOk);
}

TEST(AuditFindingTest, AbsentFromAWholeTopicIsMissing) {
  EXPECT_EQ(FindingOn(Absent(), Whole(), true), Finding::kMissing);
}

TEST(AuditFindingTest, WhatIsNotConfirmedMayStillCome) {
  EXPECT_EQ(FindingOn(Absent(), Whole(), false), Finding::kNotConfirmed);
}

TEST(AuditFindingTest, OlderThanTheTopicIsUnknown) {
  ReconciledTopic topic = Whole();
  topic.clocks.Add(1'000, 1'000, "another");
  topic.gaps.begins_ms = 1'001;
  EXPECT_EQ(FindingOn(Absent(), topic, true), Finding::kTopicBeginsLater);
  topic.gaps.begins_ms = 1'000;
  EXPECT_EQ(FindingOn(Absent(), topic, true), Finding::kMissing);
  topic.clocks.Add(1'001, 1'000, "another");
  EXPECT_EQ(FindingOn(Absent(), topic, true), Finding::kTopicBeginsLater) << "it is ahead";
}

TEST(AuditFindingTest, OnlyItsOwnPartitionMakesARowTooOld) {
  ReconciledTopic topic = Whole();
  topic.clocks.Add(1'000, 1'000, "another");
  topic.gaps.begins_ms = INT64_MAX;
  topic.gaps.partitions = {{INT64_MAX, true}, {1'000, true}};
  Reconciled row = Absent();
  row.row.partition = 1;
  EXPECT_EQ(FindingOn(row, topic, true), Finding::kMissing);
  row.row.partition = 0;
  EXPECT_EQ(FindingOn(row, topic, true), Finding::kTopicBeginsLater);
}

TEST(AuditFindingTest, ACompactedTopicAndRecordsWithoutIdsAreUnknown) {
  ReconciledTopic topic = Whole();
  topic.gaps.compaction = kafka::Compaction::kYes;
  EXPECT_EQ(FindingOn(Absent(), topic, true), Finding::kTopicCompacted);
  topic.without_id = 1;
  EXPECT_EQ(FindingOn(Absent(), topic, true), Finding::kRecordsWithoutId);
}

TEST(AuditFindingTest, ATopicThatIsPerhapsCompactedCannotTell) {
  ReconciledTopic topic = Whole();
  topic.gaps.compaction = kafka::Compaction::kUnknown;
  EXPECT_EQ(FindingOn(Absent(), topic, true), Finding::kCompactionUnknown);
  Reconciled there = Absent();
  there.in_topic = true;
  EXPECT_EQ(FindingOn(there, topic, true), Finding::kOk);
}

TEST(AuditFindingTest, AnIdThatAnotherTableMayHaveGivenCannotTell) {
  Reconciled row = Absent();
  row.id_unproven = true;
  row.too_large = true;
  EXPECT_EQ(FindingOn(row, Whole(), /*confirmed=*/false), Finding::kIdsShared);
  row.fate = DeadLetterFate::kDeadLettered;
  EXPECT_EQ(FindingOn(row, Whole(), true), Finding::kDeadLettered);
}

TEST(AuditFindingTest, WhatADeadLetterIsAboutIsNotMissing) {
  const std::pair<DeadLetterFate, Finding> cases[] = {
      {DeadLetterFate::kDeadLettered, Finding::kDeadLettered},
      {DeadLetterFate::kParked, Finding::kParked},
      {DeadLetterFate::kDiscarded, Finding::kDiscarded},
      {DeadLetterFate::kSentElsewhere, Finding::kSentElsewhere}};
  for (const auto& [fate, verdict] : cases) {
    Reconciled row = Absent();
    row.fate = fate;
    EXPECT_EQ(FindingOn(row, Whole(), true), verdict);
  }
}

TEST(AuditFindingTest, WhatCanBeNoRecordWasSkipped) {
  Reconciled row = Absent();
  row.too_large = true;
  EXPECT_EQ(FindingOn(row, Whole(), true), Finding::kUndeliverable);
}

TEST(AuditReportTest, ExitCodeIsOfTheWorst) {
  AuditReport report;
  report.Count(Absent(), Finding::kOk);
  report.Count(Absent(), Finding::kDeadLettered);
  EXPECT_EQ(report.ExitCode(), 0);
  report.Count(Absent(), Finding::kTopicBeginsLater);
  EXPECT_EQ(report.ExitCode(), 75);
  report.order.out_of_order = 1;
  EXPECT_EQ(report.ExitCode(), 65);
  report.order.out_of_order = 0;
  report.Count(Absent(), Finding::kMissing);
  EXPECT_EQ(report.ExitCode(), 65);
  EXPECT_NE(report.Text().find("\n1 missing of 4, 1 unknown\n"), std::string::npos)
      << report.Text();
}

TEST(AuditReportTest, IdsAndNamesArePrintable) {
  AuditReport report;
  report.missing = {"\x1b[2J"};
  report.order.examples = {"a\nb"};
  report.topics.emplace_back().name = "t\u009b";
  report.notes = {"\x07"};
  for (const char* shown :
       {"missing: \\x1b[2J", "order: a\\x0ab\n", "topic t\\xc2\\x9b", "note: \\x07\n"}) {
    EXPECT_NE(report.Text().find(shown), std::string::npos) << shown << report.Text();
  }
}

TEST(AuditReportTest, OnlySomeIdsAreNamed) {
  AuditReport report;
  for (int i = 0; i < 100; ++i) {
    report.Count(Absent(), Finding::kMissing);
  }
  EXPECT_EQ(report.missing.size(), AuditReport::kExamplesMax);
  EXPECT_NE(report.Text().find(" ...\n"), std::string::npos);
}

}  // namespace
}  // namespace walpost::operations
