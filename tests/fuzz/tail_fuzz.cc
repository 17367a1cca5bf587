// An input is a stream as `intake` has it; here `walpost tail` reads it, for people.
#include <glog/logging.h>

#include <string>
#include <string_view>
#include <variant>

#include "base/text.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/intake_input.h"
#include "operations/status/tail.h"
#include "outbox/options.h"
#include "pgoutput/decoder.h"
#include "support/golden_messages.h"
#include "support/pgoutput_bytes.h"

namespace walpost::fuzz {
namespace {

operations::TailOptions Options(std::uint8_t settings) {
  operations::TailOptions options;
  options.pipeline.name = "shop";
  for (const char* preset : {"walpost", "debezium"}) {
    envelope::OutboxOptions outbox;
    outbox.table = *outbox::PresetOptions(preset);
    options.pipeline.outboxes.push_back(std::move(outbox));
  }
  if ((settings & IntakeInput::kTemplate) != 0) {
    options.pipeline.outboxes[0].table.topic = "t.{aggregate_type}.{note}";
  }
  options.messages_topic = "t.{aggregate_type}";
  options.payload = (settings & IntakeInput::kRawValue) != 0;
  options.json = (settings & IntakeInput::kDebeziumHeaders) != 0;
  return options;
}

base::SourceFacts Facts() {
  base::SourceFacts facts;
  facts.system_identifier = 0xC0FFEE;
  facts.timeline = 1;
  facts.database = "shop";
  facts.tables = {{16'400, "outbox", "events"}, {16'401, "public", "outbox"}};
  return facts;
}

// False: the server would be left.
bool Take(std::string_view entry, operations::TailReader* reader) {
  const auto frame = pgoutput::DecodeFrame(entry);
  if (!frame.ok()) {
    return true;
  }
  if (const auto* keepalive = std::get_if<pgoutput::Keepalive>(&*frame)) {
    reader->TakePosition(keepalive->wal_end);
    return true;
  }
  const auto line = reader->Take(std::get<pgoutput::XLogData>(*frame).payload);
  if (!line.ok()) {
    CHECK(absl::IsDataLoss(line.status())) << line.status();
    return false;
  }
  if (*line) {
    CHECK(!(*line)->empty() && base::IsUtf8(**line));
    CHECK_EQ((*line)->find('\x1b'), std::string::npos) << "a terminal obeys it";
  }
  return true;
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::vector<std::string> inputs;
  for (const char* name : {"v15-text", "v15-binary"}) {
    IntakeInput input;
    for (const std::string& message : testing::GoldenMessages(name)) {
      input.entries.push_back(testing::XLogDataFrame(message));
    }
    for (const int settings : {0, 1, 2, 3, 16}) {
      input.settings = static_cast<std::uint8_t>(settings);
      inputs.push_back(input.Join());
    }
  }
  return inputs;
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = walpost::fuzz::IntakeInput::Split(
      std::string_view(reinterpret_cast<const char*>(data), size));
  const walpost::fuzz::Bounds bounds;
  const walpost::operations::TailOptions options = walpost::fuzz::Options(input.settings);
  walpost::operations::TailReader reader(options, walpost::fuzz::Facts());
  for (const std::string& entry : input.entries) {
    if (!walpost::fuzz::Take(entry, &reader)) {
      break;
    }
  }
  bounds.Check();
  return 0;
}
