#include "conformance/sink_contract.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <type_traits>

namespace walpost::testing {
namespace {

using delivery::Failure;
using delivery::FailureKind;
using delivery::Sequence;
using delivery::Sink;
using delivery::SubmitResult;
using Outcome = SubmitResult::Outcome;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kPatience{60};
// Generous: the machine may be busy. What it is about would block for seconds.
constexpr std::chrono::milliseconds kBlocking{1'000};

std::vector<std::string> FirstOccurrences(const std::vector<std::string>& values) {
  std::vector<std::string> first;
  std::set<std::string> seen;
  for (const std::string& value : values) {
    if (seen.insert(value).second) {
      first.push_back(value);
    }
  }
  return first;
}

}  // namespace

void SinkReports::OnDelivered(Sequence sequence, delivery::PartitionOffset where) {
  EXPECT_EQ(outstanding.erase(sequence), 1U) << "second report for " << sequence;
  EXPECT_EQ(closed, 0) << "report for " << sequence << " after OnClosed";
  delivered.push_back(sequence);
  places[sequence] = where;
}

void SinkReports::OnFailed(Sequence sequence, const Failure& failure) {
  EXPECT_EQ(outstanding.erase(sequence), 1U) << "second report for " << sequence;
  EXPECT_EQ(closed, 0) << "report for " << sequence << " after OnClosed";
  EXPECT_NE(failure.kind, FailureKind::kNone);
  failed.emplace_back(sequence, failure);
}

void SinkReports::OnSessionFailed(const Failure& failure) {
  EXPECT_NE(failure.detail, "");
  ++session_failures;
}

void SinkReports::OnClosed() { ++closed; }

void SinkContract::SetUp() {
  harness_ = GetParam().make();
  ASSERT_NE(harness_, nullptr);
  sink_ = harness_->sink();
  ASSERT_NE(sink_, nullptr);
  ASSERT_TRUE(sink_->closed());
}

void SinkContract::TearDown() {
  EXPECT_LT(longest_call_, kBlocking) << "a call blocked the loop";
  harness_.reset();  // before the records
}

template <typename Call>
auto SinkContract::Timed(Call call) {
  const auto start = std::chrono::steady_clock::now();
  const auto measure = [this, start] {
    longest_call_ = std::max(longest_call_, std::chrono::steady_clock::now() - start);
  };
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    measure();
  } else {
    auto result = call();
    measure();
    return result;
  }
}

void SinkContract::Open(Sink::Mode mode) {
  reports_.failed.clear();
  reports_.session_failures = 0;
  reports_.closed = 0;
  Timed([&] { sink_->Open(mode); });
  EXPECT_FALSE(sink_->closed());
}

void SinkContract::Poll() {
  Timed([&] { sink_->Poll(harness_->now(), &reports_); });
}

void SinkContract::Await(const char* what, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waiting for " << what;
    harness_->Step();
    Poll();
  }
}

void SinkContract::AwaitAllDelivered() {
  Await("all reports", [this] { return reports_.outstanding.empty(); });
  EXPECT_THAT(reports_.failed, IsEmpty());
}

void SinkContract::CloseAndAwait() {
  Timed([&] { sink_->Close(); });
  Await("OnClosed", [this] { return reports_.closed > 0; });
  EXPECT_TRUE(sink_->closed());
  reports_.outstanding.clear();
}

void SinkContract::Reopen() {
  const int before = reports_.outgrown;
  Await("the producer to be outgrown", [&] { return reports_.outgrown > before; });
  CloseAndAwait();
  Open();
}

const envelope::Record& SinkContract::MakeRecord(Sequence sequence, const std::string& topic,
                                                 std::int32_t partition, const std::string& value) {
  auto kept = std::make_unique<Kept>();
  kept->topic = topic;
  kept->value = value;
  kept->record.topic = kept->topic;
  kept->record.value = kept->value;
  kept->record.partition = partition;
  return (records_[sequence] = std::move(kept))->record;
}

Outcome SinkContract::Submit(Sequence sequence) {
  const SubmitResult result =
      Timed([&] { return sink_->Submit(records_.at(sequence)->record, sequence); });
  if (result.outcome == Outcome::kAccepted) {
    reports_.outstanding.insert(sequence);
  }
  return result.outcome;
}

SubmitResult SinkContract::Offer(Sequence sequence) {
  SubmitResult result;
  Await("the record to be taken", [&] {
    result = Timed([&] { return sink_->Submit(records_.at(sequence)->record, sequence); });
    return result.outcome != Outcome::kNotNow && result.outcome != Outcome::kTopicPending;
  });
  if (result.outcome == Outcome::kAccepted) {
    reports_.outstanding.insert(sequence);
  }
  return result;
}

void SinkContract::Warm(const std::string& topic, std::int32_t partition) {
  const Sequence sequence = next_++;
  MakeRecord(sequence, topic, partition, "first of " + std::to_string(partition));
  ASSERT_EQ(Offer(sequence).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
}

bool SinkContract::Delivered(Sequence sequence) const {
  return std::find(reports_.delivered.begin(), reports_.delivered.end(), sequence) !=
         reports_.delivered.end();
}

std::vector<std::string> SinkContract::Values(const std::string& topic,
                                              std::int32_t partition) const {
  std::vector<std::string> values;
  for (const auto& [sequence, kept] : records_) {
    if (kept->topic == topic && kept->record.partition == partition) {
      values.push_back(kept->value);
    }
  }
  return values;
}

TEST_P(SinkContract, EveryRecordIsReportedOnceAndInOrderPerPartition) {
  constexpr int kPartitions = 3;
  constexpr Sequence kRecords = 3'000;
  const std::string topic = harness_->MakeTopic(kPartitions);
  Open();
  for (; next_ < kRecords; ++next_) {
    MakeRecord(next_, topic, static_cast<std::int32_t>(next_ * 7 % kPartitions),
               "value " + std::to_string(next_));
    ASSERT_EQ(Offer(next_).outcome, Outcome::kAccepted);
  }
  AwaitAllDelivered();
  ASSERT_EQ(reports_.delivered.size(), kRecords);
  std::map<Sequence, Sequence> last;  // by partition
  for (const Sequence sequence : reports_.delivered) {
    Sequence& before = last[sequence * 7 % kPartitions];
    EXPECT_LE(before, sequence) << "reported out of order";
    before = sequence;
  }
  for (std::int32_t partition = 0; partition < kPartitions; ++partition) {
    EXPECT_EQ(harness_->Read(topic, partition), Values(topic, partition));
  }
  CloseAndAwait();
}

TEST_P(SinkContract, ReportSaysWhereTheRecordIs) {
  const std::string topic = harness_->MakeTopic(2);
  Open();
  for (; next_ < 100; ++next_) {
    MakeRecord(next_, topic, static_cast<std::int32_t>(next_ % 2), std::to_string(next_));
    const SubmitResult offered = Offer(next_);
    ASSERT_EQ(offered.outcome, Outcome::kAccepted) << offered.failure.detail;
  }
  AwaitAllDelivered();
  const std::vector<std::string> logs[] = {harness_->Read(topic, 0), harness_->Read(topic, 1)};
  for (Sequence sequence = 0; sequence < next_; ++sequence) {
    const auto [partition, offset] = reports_.places.at(sequence);
    ASSERT_EQ(partition, static_cast<std::int32_t>(sequence % 2));
    ASSERT_GE(offset, 0);
    EXPECT_EQ(logs[partition].at(static_cast<std::size_t>(offset)), std::to_string(sequence));
  }
  CloseAndAwait();
}

TEST_P(SinkContract, KeyNullKeyAndTombstoneAreTaken) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  const std::string key = "key";
  envelope::Record record;
  record.topic = topic;
  record.key = key;  // the value stays null
  Await("room", [&] { return sink_->Submit(record, 0).outcome == Outcome::kAccepted; });
  reports_.outstanding.insert(0);
  AwaitAllDelivered();
  record.key = std::nullopt;
  record.value = std::string_view();
  Await("room", [&] { return sink_->Submit(record, 1).outcome == Outcome::kAccepted; });
  reports_.outstanding.insert(1);
  AwaitAllDelivered();
  CloseAndAwait();
}

TEST_P(SinkContract, RecordsWithoutAKeyAreDeliveredToAnyPartition) {
  const std::string topic = harness_->MakeTopic(2);
  Open();
  envelope::Record record;
  record.topic = topic;
  record.value = "v";
  for (; next_ < 6; ++next_) {
    Await("room", [&] { return sink_->Submit(record, next_).outcome == Outcome::kAccepted; });
    reports_.outstanding.insert(next_);
  }
  AwaitAllDelivered();
  EXPECT_EQ(harness_->Read(topic, 0).size() + harness_->Read(topic, 1).size(), 6U);
  CloseAndAwait();
}

// Failure 77.
TEST_P(SinkContract, FullQueueIsNotNowAndLaterThereIsRoom) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  int accepted = 0;
  MakeRecord(next_, topic, 0, "value 0");
  while (Submit(next_) == Outcome::kAccepted) {
    ++next_;
    ASSERT_LE(++accepted, SinkHarness::kQueueLimit);
    MakeRecord(next_, topic, 0, "value " + std::to_string(accepted));
  }
  EXPECT_EQ(accepted, SinkHarness::kQueueLimit);
  ASSERT_EQ(Offer(next_).outcome, Outcome::kAccepted) << "room again";
  AwaitAllDelivered();
  EXPECT_EQ(harness_->Read(topic, 0), Values(topic, 0));
  CloseAndAwait();
}

TEST_P(SinkContract, CloseReportsWhatIsOutstandingAndThenNothing) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  for (int i = 0; i < 500; ++i, ++next_) {
    MakeRecord(next_, topic, 0, "value " + std::to_string(i));
    ASSERT_EQ(Submit(next_), Outcome::kAccepted);
  }
  sink_->Close();
  sink_->Close();  // ignored
  MakeRecord(next_, topic, 0, "too late");
  EXPECT_EQ(Submit(next_), Outcome::kNotNow);
  Await("OnClosed", [this] { return reports_.closed > 0; });
  EXPECT_TRUE(sink_->closed());
  EXPECT_THAT(reports_.outstanding, IsEmpty());
  for (const auto& [sequence, failure] : reports_.failed) {
    EXPECT_EQ(failure.kind, FailureKind::kSessionEnded) << "no verdict on record " << sequence;
  }
  for (int i = 0; i < 20; ++i) {
    harness_->Step();
    Poll();
  }
  EXPECT_EQ(reports_.closed, 1);
}

TEST_P(SinkContract, IdleSessionCloses) {
  Open();
  CloseAndAwait();
  Open(Sink::Mode::kOneAtATime);
  CloseAndAwait();
  EXPECT_EQ(reports_.closed, 1);
  EXPECT_THAT(reports_.delivered, IsEmpty());
}

// Failure 79.
TEST_P(SinkContract, WhatOneSessionDidNotDeliverTheNextOnesDoWithoutGaps) {
  constexpr Sequence kRecords = 900;
  const std::string topic = harness_->MakeTopic(2);
  for (next_ = 0; next_ < kRecords; ++next_) {
    MakeRecord(next_, topic, static_cast<std::int32_t>(next_ % 2), std::to_string(next_));
  }
  Sequence until = 0;
  for (int session = 0; until < kRecords || !reports_.outstanding.empty(); ++session) {
    ASSERT_LT(session, 10);
    Open(session % 2 == 0 ? Sink::Mode::kPipelined : Sink::Mode::kOneAtATime);
    until = std::min(until + 150, kRecords);
    for (Sequence sequence = 0; sequence < until; ++sequence) {
      if (!Delivered(sequence)) {
        ASSERT_EQ(Offer(sequence).outcome, Outcome::kAccepted);
      }
    }
    if (until == kRecords) {
      AwaitAllDelivered();
    }
    CloseAndAwait();  // with records under way
  }
  EXPECT_EQ(reports_.delivered.size(), kRecords);
  for (const std::int32_t partition : {0, 1}) {
    EXPECT_EQ(FirstOccurrences(harness_->Read(topic, partition)), Values(topic, partition));
  }
}

TEST_P(SinkContract, NothingOfAPartitionOvertakesARecordThatFailed) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness_->ArmPoison();
  MakeRecord(next_, topic, 0, SinkHarness::kPoison + std::string(20'000, 'x'));
  ASSERT_EQ(Submit(next_++), Outcome::kAccepted);
  for (int i = 0; i < 200; ++i, ++next_) {
    MakeRecord(next_, topic, 0, "follower " + std::to_string(i));
    if (Submit(next_) != Outcome::kAccepted) {
      break;
    }
    if (i % 10 == 0) {
      harness_->Step();
      Poll();
    }
  }
  Await("the failure", [this] { return reports_.Trouble(); });
  CloseAndAwait();
  EXPECT_THAT(harness_->Read(topic, 0), ElementsAre("first of 0"));
  EXPECT_THAT(reports_.delivered, ElementsAre(0));
}

TEST_P(SinkContract, CarefulFailsTheOneRecordThatIsRejected) {
  const std::string topic = harness_->MakeTopic(1);
  Open(Sink::Mode::kOneAtATime);
  Warm(topic, 0);
  harness_->ArmPoison();
  const Sequence poison = next_;
  for (; next_ < poison + 5; ++next_) {
    const std::string text = SinkHarness::kPoison + std::string(20'000, 'x');
    MakeRecord(next_, topic, 0, next_ == poison ? text : "innocent " + std::to_string(next_));
    ASSERT_EQ(Submit(next_), Outcome::kAccepted);
  }
  Await("the failure", [this] { return reports_.Trouble(); });
  ASSERT_EQ(reports_.failed.size(), 1U);
  EXPECT_EQ(reports_.failed[0].first, poison);
  EXPECT_EQ(reports_.failed[0].second.kind, FailureKind::kRecordTooLarge);
  EXPECT_EQ(reports_.failed[0].second.detail.find("xxxx"), std::string::npos);
  CloseAndAwait();
  EXPECT_THAT(harness_->Read(topic, 0), ElementsAre("first of 0"));
}

// Failure 67.
TEST_P(SinkContract, TopicThatDoesNotExistIsRejectedAndTheSessionGoesOn) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  const Sequence lost = next_++;
  MakeRecord(lost, harness_->MissingTopic(lost), 0, "nowhere");
  const SubmitResult result = Offer(lost);
  EXPECT_EQ(result.outcome, Outcome::kRejected);
  EXPECT_EQ(result.failure.kind, FailureKind::kTopicUnknown);
  EXPECT_NE(result.failure.detail, "");
  Warm(topic, 0);
  EXPECT_FALSE(reports_.Trouble());
  CloseAndAwait();
}

TEST_P(SinkContract, ManySessionsComeAndGoWithoutBlockingTheCaller) {
  const std::string topic = harness_->MakeTopic(1);
  for (int i = 0; i < 10; ++i) {
    Open(i % 2 == 0 ? Sink::Mode::kPipelined : Sink::Mode::kOneAtATime);
    MakeRecord(next_, topic, 0, std::to_string(i));
    ASSERT_EQ(Offer(next_++).outcome, Outcome::kAccepted);
    CloseAndAwait();
  }
}

}  // namespace walpost::testing
