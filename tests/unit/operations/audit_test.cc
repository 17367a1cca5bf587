#include "operations/audit.h"

#include <gtest/gtest.h>

#include "operations/audit_report.h"

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

TEST(AuditVerdictTest, InTheTopicIsFineWhateverElseIsKnown) {
  Reconciled there = Absent();
  there.in_topic = true;
  there.too_large = true;
  there.fate = DeadLetterFate::kDeadLettered;
  EXPECT_EQ(VerdictOn(there, Whole(), /*confirmed=*/false), Verdict::kOk);
}

TEST(AuditVerdictTest, AbsentFromAWholeTopicIsMissing) {
  EXPECT_EQ(VerdictOn(Absent(), Whole(), true), Verdict::kMissing);
}

TEST(AuditVerdictTest, WhatIsNotConfirmedMayStillCome) {
  EXPECT_EQ(VerdictOn(Absent(), Whole(), false), Verdict::kNotConfirmed);
}

TEST(AuditVerdictTest, OlderThanTheTopicIsUnknown) {
  ReconciledTopic topic = Whole();
  topic.gaps.begins_ms = 1'001;
  EXPECT_EQ(VerdictOn(Absent(), topic, true), Verdict::kTopicBeginsLater);
  topic.gaps.begins_ms = 1'000;
  EXPECT_EQ(VerdictOn(Absent(), topic, true), Verdict::kMissing);
}

TEST(AuditVerdictTest, ACompactedTopicAndRecordsWithoutIdsAreUnknown) {
  ReconciledTopic topic = Whole();
  topic.gaps.compaction = kafka::Compaction::kYes;
  EXPECT_EQ(VerdictOn(Absent(), topic, true), Verdict::kTopicCompacted);
  topic.without_id = 1;
  EXPECT_EQ(VerdictOn(Absent(), topic, true), Verdict::kRecordsWithoutId);
}

TEST(AuditVerdictTest, ATopicThatIsPerhapsCompactedCannotTell) {
  ReconciledTopic topic = Whole();
  topic.gaps.compaction = kafka::Compaction::kUnknown;
  EXPECT_EQ(VerdictOn(Absent(), topic, true), Verdict::kCompactionUnknown);
  Reconciled there = Absent();
  there.in_topic = true;
  EXPECT_EQ(VerdictOn(there, topic, true), Verdict::kOk);
}

TEST(AuditVerdictTest, AnIdThatAnotherTableMayHaveGivenCannotTell) {
  Reconciled row = Absent();
  row.id_unproven = true;
  row.too_large = true;
  EXPECT_EQ(VerdictOn(row, Whole(), /*confirmed=*/false), Verdict::kIdsShared);
  row.fate = DeadLetterFate::kDeadLettered;
  EXPECT_EQ(VerdictOn(row, Whole(), true), Verdict::kDeadLettered);
}

TEST(AuditVerdictTest, WhatADeadLetterIsAboutIsNotMissing) {
  const std::pair<DeadLetterFate, Verdict> cases[] = {
      {DeadLetterFate::kDeadLettered, Verdict::kDeadLettered},
      {DeadLetterFate::kParked, Verdict::kParked},
      {DeadLetterFate::kDiscarded, Verdict::kDiscarded},
      {DeadLetterFate::kSentElsewhere, Verdict::kSentElsewhere}};
  for (const auto& [fate, verdict] : cases) {
    Reconciled row = Absent();
    row.fate = fate;
    EXPECT_EQ(VerdictOn(row, Whole(), true), verdict);
  }
}

TEST(AuditVerdictTest, WhatCanBeNoRecordWasSkipped) {
  Reconciled row = Absent();
  row.too_large = true;
  EXPECT_EQ(VerdictOn(row, Whole(), true), Verdict::kUndeliverable);
}

TEST(AuditReportTest, ExitCodeIsOfTheWorst) {
  AuditReport report;
  report.Count(Absent(), Verdict::kOk);
  report.Count(Absent(), Verdict::kDeadLettered);
  EXPECT_EQ(report.ExitCode(), 0);
  report.Count(Absent(), Verdict::kTopicBeginsLater);
  EXPECT_EQ(report.ExitCode(), 75);
  report.order.out_of_order = 1;
  EXPECT_EQ(report.ExitCode(), 65);
  report.order.out_of_order = 0;
  report.Count(Absent(), Verdict::kMissing);
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
    report.Count(Absent(), Verdict::kMissing);
  }
  EXPECT_EQ(report.missing.size(), AuditReport::kExamplesMax);
  EXPECT_NE(report.Text().find(" ...\n"), std::string::npos);
}

}  // namespace
}  // namespace walpost::operations
