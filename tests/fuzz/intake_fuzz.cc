// An input is a replication stream (intake_input.h) with tables, rows and events of its own.
// However it lies: it ends in a Halt or in records that a Kafka client can be given, none twice,
// none out of order, and the tracker's own checks on what may be confirmed hold.
#include <glog/logging.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/intake_input.h"
#include "outbox/column_value.h"
#include "outbox/kept_row.h"
#include "outbox/options.h"
#include "outbox/topic_rules.h"
#include "pgoutput/decoder.h"
#include "pipeline/intake.h"
#include "support/golden_messages.h"
#include "support/pgoutput_bytes.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::fuzz {
namespace {

envelope::EncoderOptions EncoderOf(std::uint8_t settings) {
  const bool raw = (settings & IntakeInput::kRawValue) != 0;
  const bool debezium = (settings & IntakeInput::kDebeziumHeaders) != 0;
  envelope::EncoderOptions options;
  if ((settings & IntakeInput::kCloudEvents) != 0) {
    options.format = envelope::ValueFormat::kCloudEvents;
    options.cloud_events.mode = raw        ? envelope::CloudEventMode::kStructuredProtobuf
                                : debezium ? envelope::CloudEventMode::kStructuredJson
                                           : envelope::CloudEventMode::kBinary;
    return options;
  }
  options.format = raw ? envelope::ValueFormat::kRaw : envelope::ValueFormat::kEnvelope;
  options.header_set = debezium ? envelope::HeaderSet::kDebezium : envelope::HeaderSet::kWalpost;
  return options;
}

std::vector<envelope::OutboxOptions> Outboxes(std::uint8_t settings) {
  envelope::OutboxOptions events;
  events.table = *outbox::PresetOptions("walpost");
  events.encoder = EncoderOf(settings);
  if ((settings & IntakeInput::kRoutedByRow) != 0) {
    events.table.columns.topic = {"topic"};
    events.table.columns.partition = {"partition"};
    events.table.record_headers = {{"note", "note"}};
  }
  if ((settings & IntakeInput::kTemplate) != 0) {
    events.table.topic = "t.{aggregate_type}.{note}";
    events.table.topics.allowed = {"*"};
  }
  events.table.null_key_allowed = (settings & IntakeInput::kNullsAllowed) != 0;
  envelope::OutboxOptions debezium;
  debezium.table = *outbox::PresetOptions("debezium");
  debezium.encoder = {envelope::ValueFormat::kRaw, envelope::HeaderSet::kDebezium};
  // A table of every type, as in the golden messages.
  envelope::OutboxOptions every_type;
  every_type.table.schema = "public";
  every_type.table.table = "every_type";
  every_type.table.topic = "every.{small}";
  every_type.table.columns.id = {"id"};
  every_type.table.columns.key = {"big"};
  every_type.table.columns.type = {"mood", "feeling"};
  every_type.table.columns.payload = {"raw"};
  every_type.table.columns.headers = {"paper", "tree"};
  every_type.table.columns.occurred_at = {"moment"};
  every_type.table.columns.partition = {"number"};
  every_type.table.null_key_allowed = true;
  return {events, debezium, every_type};
}

pipeline::PipelineOptions Options(std::uint8_t settings) {
  pipeline::PipelineOptions options;
  options.name = "shop";
  options.outboxes = Outboxes(settings);
  if ((settings & IntakeInput::kDeadLetter) != 0) {
    options.on_undeliverable = pipeline::OnUndeliverable::kDeadLetter;
  } else if ((settings & IntakeInput::kSkip) != 0) {
    options.on_undeliverable = pipeline::OnUndeliverable::kSkip;
  }
  return options;
}

base::SourceFacts Facts() {
  base::SourceFacts facts;
  facts.system_identifier = 0xC0FFEE;
  facts.timeline = 3;
  facts.timeline_history = {{1, base::Lsn(0x1000)}, {2, base::Lsn(0x2000)}};
  facts.database = "shop";
  facts.text_types = {outbox::type_oid::kFirstUserType};
  facts.tables = {
      {16'400, "outbox", "events"}, {16'401, "public", "outbox"}, {16'395, "public", "every_type"}};
  return facts;
}

// Commit LSN and ordinal.
using Place = std::pair<base::Lsn, std::int64_t>;
constexpr Place kNothing(base::Lsn(), -1);

class Session {
 public:
  explicit Session(std::uint8_t settings)
      : options_(Options(settings)),
        dead_letters_(options_, &tracker_),
        undeliverables_(options_, &tracker_, &counters_, &dead_letters_),
        intake_(options_, &tracker_, &counters_, &undeliverables_) {
    Start();
  }

  void Take(std::string_view entry) {
    if (entry == IntakeInput::kReconnect) {
      intake_.Leave();
      Start();
    } else if (entry == IntakeInput::kGiveUp) {
      GiveUp();
    } else if (entry.size() == 2 && entry[0] == IntakeInput::kSettle) {
      SettleOne(static_cast<std::uint8_t>(entry[1]));
    } else {
      TakeFrame(entry);
    }
  }

  // The newest first: the worst order for memory and for what may be confirmed.
  void SettleAll() {
    intake_.Leave();
    for (delivery::Sequence i = tracker_.next_sequence(); i-- > tracker_.oldest_unsettled();) {
      if (!tracker_.entry(i).settled) {
        Settle(i);
      }
    }
    CHECK(tracker_.empty());
    CHECK_EQ(tracker_.in_flight_bytes(), 0U);
    CHECK_EQ(counters_.events_received, settled_ + discarded_ + counters_.events_skipped);
  }

 private:
  void TakeFrame(std::string_view bytes) {
    const absl::StatusOr<pgoutput::Frame> frame = pgoutput::DecodeFrame(bytes);
    if (!frame.ok()) {
      GiveUp();
      return;
    }
    if (const auto* keepalive = std::get_if<pgoutput::Keepalive>(&*frame)) {
      if (intake_.TakePosition(keepalive->wal_end)) {
        GiveUp();
      }
      return;
    }
    const delivery::Sequence before = tracker_.next_sequence();
    const auto& data = std::get<pgoutput::XLogData>(*frame);
    const auto halt = intake_.TakePayload(data.payload, data.start);
    const delivery::Sequence after = tracker_.next_sequence();
    CHECK_LE(after, before + (halt ? 0 : 1));
    if (after != before) {
      CheckRecord(tracker_.entry(before));
    }
    if (halt) {
      CHECK(!halt->detail.empty());
      GiveUp();
    }
  }

  // As the pipeline does after a halt.
  void GiveUp() {
    intake_.Leave();
    discarded_ += tracker_.DiscardAll();
    dead_letters_.GiveUp();
    undeliverables_.Forget();
    tracker_.ForgetPositions();
    intake_.Forget();
    newest_ = kNothing;
    Start();
  }

  void Start() {
    intake_.Start(Facts());
    undeliverables_.OnConnected(Facts());
  }

  void SettleOne(std::size_t choice) {
    const delivery::Sequence oldest = tracker_.oldest_unsettled();
    const std::size_t count = tracker_.next_sequence() - oldest;
    if (count != 0 && !tracker_.entry(oldest + choice % count).settled) {
      Settle(oldest + choice % count);
    }
  }

  void Settle(delivery::Sequence sequence) {
    const base::Lsn safe = tracker_.safe_lsn();
    tracker_.Settle(sequence);
    ++settled_;
    CHECK_GE(tracker_.safe_lsn(), safe);
  }

  void CheckRecord(const delivery::Tracker::Entry& entry) {
    const Place place(entry.commit_lsn, entry.ordinal);
    CHECK(place > newest_) << "taken twice, or out of order";
    newest_ = place;

    const envelope::Record& record = entry.record;
    if (entry.form != delivery::Tracker::Form::kEvent) {
      CheckDeadLetter(entry);
      return;
    }
    CHECK(outbox::IsLegalTopic(record.topic)) << record.topic;
    CHECK_GE(record.partition, -1);
    CHECK(!record.headers.empty());
    CHECK_EQ(record.headers[0].name, "id");
    std::size_t bytes = record.topic.size() + record.headers.size_bytes();
    bytes += record.key ? record.key->size() : 0;
    bytes += record.value ? record.value->size() : 0;
    for (const envelope::RecordHeader& header : record.headers) {
      CHECK(!header.name.empty());
      bytes += header.name.size() + header.value.size();
      if (header.name == "walpost-position") {
        CheckPosition(header.value, entry);
      } else if (header.name == "content-type" &&
                 header.value.find("walpost.v1.Envelope") != std::string_view::npos) {
        CheckEnvelope(*record.value, entry);
      }
    }
    CHECK_EQ(bytes, record.block.size);
  }

  static void CheckPosition(std::string_view text, const delivery::Tracker::Entry& entry) {
    const auto position = envelope::Position::Parse(text);
    if (!position.ok()) {
      return;  // the row has a header of that name itself
    }
    const base::SourceFacts facts = Facts();
    const envelope::Position expected{facts.system_identifier, facts.TimelineOf(entry.commit_lsn),
                                      entry.commit_lsn, entry.ordinal};
    CHECK(*position == expected) << text;
  }

  void CheckDeadLetter(const delivery::Tracker::Entry& entry) {
    const base::DeadLetter row = undeliverables_.RowOf(tracker_.next_sequence() - 1);
    CHECK(row.keeps_row() && row.headers.empty());
    const auto kept = outbox::KeptRow::Parse(*row.value);
    CHECK(kept.ok()) << kept.status();
    const auto position = envelope::Position::Parse(row.position);
    CHECK(position.ok());
    CHECK(position->commit_lsn == entry.commit_lsn && position->ordinal == entry.ordinal);
    const std::optional<pipeline::Decision> decision = undeliverables_.TakeDecision();
    CHECK(decision && decision->event.position == row.position);
  }

  static void CheckEnvelope(std::string_view value, const delivery::Tracker::Entry& entry) {
    v1::Envelope envelope;
    CHECK(envelope.ParseFromArray(value.data(), static_cast<int>(value.size())));
    CHECK_EQ(envelope.ByteSizeLong(), value.size()) << "a field twice, or one nobody knows";
    CHECK_EQ(envelope.id(), entry.record.headers[0].value);
    CHECK_EQ(envelope.has_aggregate_id(), entry.record.key.has_value());
    CHECK_EQ(envelope.aggregate_id(), entry.record.key.value_or(""));
    CHECK_EQ(envelope.position().commit_lsn(), entry.commit_lsn.value());
    CHECK_EQ(envelope.position().ordinal(), entry.ordinal);
  }

  delivery::Tracker tracker_;
  pipeline::Counters counters_;
  const pipeline::PipelineOptions options_;
  pipeline::DeadLetters dead_letters_;
  pipeline::Undeliverables undeliverables_;
  pipeline::Intake intake_;
  Place newest_ = kNothing;
  std::uint64_t settled_ = 0;
  std::uint64_t discarded_ = 0;
};

}  // namespace

std::vector<std::string> MoreInputs() {
  std::vector<std::string> inputs;
  for (const char* name : {"v15-text", "v15-binary"}) {
    IntakeInput input;
    for (const std::string& message : testing::GoldenMessages(name)) {
      input.entries.push_back(testing::XLogDataFrame(message));
    }
    inputs.push_back(input.Join());
  }
  return inputs;
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = walpost::fuzz::IntakeInput::Split(
      std::string_view(reinterpret_cast<const char*>(data), size));
  const walpost::fuzz::Bounds bounds;
  walpost::fuzz::Session session(input.settings);
  for (const std::string& entry : input.entries) {
    session.Take(entry);
  }
  session.SettleAll();
  bounds.Check();
  return 0;
}
