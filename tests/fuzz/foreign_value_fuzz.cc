// An input is what somebody else wrote into one value: the first byte says which parser reads the
// rest. JSON that is to be expanded, a value of a column that Debezium's options place, or a record
// of the progress topic.
#include <glog/logging.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "envelope/progress.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "outbox/column_value.h"
#include "outbox/connect_value.h"
#include "outbox/json_expansion.h"

namespace walpost::fuzz {
namespace {

void CheckExpansion(std::string_view text, bool keep) {
  std::string out = "before";
  const bool expanded = outbox::ExpandJson(text, {keep, keep}, &out);
  CHECK_EQ(out.substr(0, 6), "before");
  if (!expanded) {
    CHECK_EQ(out, "before");
    return;
  }
  CHECK_LE(out.size(), 6 + outbox::JsonOutputMax(text.size()) + 2);
  CHECK(nlohmann::json::accept(out.substr(6))) << out;
}

void CheckColumn(std::uint8_t choice, std::string_view bytes) {
  namespace type = outbox::type_oid;
  constexpr std::array kTypes = {type::kBool,   type::kInt2,      type::kInt4,        type::kInt8,
                                 type::kFloat4, type::kFloat8,    type::kNumeric,     type::kDate,
                                 type::kTime,   type::kTimestamp, type::kTimestamptz, type::kUuid,
                                 type::kBytea,  type::kText,      type::kJsonb,       type::kOid};
  constexpr std::int32_t kNumericOf12And3 = ((12 << 16) | 3) + 4;
  const std::uint32_t oid = kTypes[choice % kTypes.size()];
  pgoutput::Value value;
  value.kind = (choice & 0x40) != 0 ? pgoutput::Value::Kind::kText : pgoutput::Value::Kind::kBinary;
  value.bytes = bytes;
  std::string scratch;
  if (const auto time = outbox::ToTime(value); time.ok()) {
    CHECK_LT(std::chrono::abs(time->time_since_epoch()), std::chrono::hours(24 * 366 * 9999L));
  }
  (void)outbox::ToInteger(value, type::kInt8);
  (void)outbox::ToBytes(value, oid, &scratch);
  const auto column = outbox::ConnectColumn::Of(oid, oid == type::kNumeric ? kNumericOf12And3 : -1,
                                                /*is_domain=*/false);
  CHECK(column.has_value()) << oid;
  if (const auto text = column->Text(value, &scratch); text.ok()) {
    CHECK_LE(text->size(), 64 + bytes.size() * 4 + (oid == type::kNumeric ? 400'000 : 0));
  }
  std::string json;
  (void)column->AppendJson(value, &json);
}

void CheckProgress(std::string_view bytes) {
  const auto progress = envelope::DecodeProgress(bytes);
  if (!progress.ok()) {
    CHECK(absl::IsDataLoss(progress.status()) || absl::IsUnimplemented(progress.status()));
    return;
  }
  CHECK_LT(progress->epoch, progress->epoch + 1) << "a decision overrules it";
  const auto again = envelope::DecodeProgress(envelope::EncodeProgress(*progress));
  CHECK(again.ok() && again->end_lsn == progress->end_lsn) << again.status();
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::string elements;
  for (int i = 0; i < 2'000; ++i) {
    elements += (i == 0 ? "{\"m" : ",{\"m") + std::to_string(i) + "\":1}";
  }
  return {std::string(1, '\0') + "{\"l\":[" + elements + "]}"};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const walpost::fuzz::Bounds bounds;
  if ((data[0] & 0x80) != 0) {
    walpost::fuzz::CheckColumn(data[0], rest);
  } else if ((data[0] & 0x20) != 0) {
    walpost::fuzz::CheckProgress(rest);
  } else {
    walpost::fuzz::CheckExpansion(rest, (data[0] & 1) != 0);
  }
  bounds.Check();
  return 0;
}
