// An input is what somebody else wrote into one value: the first byte says which parser reads the
// rest. JSON that is to be expanded, a value of a column that Debezium's options place, or a record
// of the progress topic.
#include <glog/logging.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/time.h"
#include "envelope/control_records.h"
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

std::string ServerDate(absl::CivilDay day) {
  const bool before_christ = day.year() < 1;
  return absl::StrFormat("%04d-%02d-%02d", before_christ ? 1 - day.year() : day.year(), day.month(),
                         day.day());
}

std::string Era(absl::CivilDay day) { return day.year() < 1 ? " BC" : ""; }

// Microseconds since 2000, as EncodeDateTime writes them.
std::string ServerTimestamp(std::int64_t micros, const char* zone) {
  const absl::Time time = absl::FromUnixSeconds(base::kPostgresEpochUnixMicros / 1'000'000) +
                          absl::Microseconds(micros);
  const absl::CivilDay day = absl::ToCivilDay(time, absl::UTCTimeZone());
  return ServerDate(day) + absl::FormatTime(" %H:%M:%E*S", time, absl::UTCTimeZone()) + zone +
         Era(day);
}

// What the server writes for what it sends. Nothing for what it never sends, and for types whose
// forms cannot differ.
std::optional<std::string> ServerText(std::uint32_t oid, std::string_view sent) {
  namespace type = outbox::type_oid;
  constexpr std::int64_t kFirstDay = -2'451'545;  // 4714-11-24 BC
  constexpr std::int64_t kLastDay = 2'145'031'948;
  constexpr std::int64_t kDayMicros = 86'400'000'000;
  constexpr std::int64_t kLastMicros = 9'223'371'331'199'999'999;  // 294276-12-31 23:59:59.999999
  base::ByteReader reader(sent);
  if (oid == type::kDate && sent.size() == 4) {
    const std::int64_t days = reader.I32();
    const absl::CivilDay day = absl::CivilDay(2000, 1, 1) + days;
    return days < kFirstDay || days > kLastDay ? std::nullopt
                                               : std::optional(ServerDate(day) + Era(day));
  }
  if (oid == type::kTime && sent.size() == 8) {
    const std::int64_t micros = reader.I64();
    if (micros < 0 || micros > kDayMicros) {
      return std::nullopt;
    }
    return micros == kDayMicros ? "24:00:00" : ServerTimestamp(micros, "").substr(11);
  }
  if ((oid == type::kTimestamp || oid == type::kTimestamptz) && sent.size() == 8) {
    const std::int64_t micros = reader.I64();
    return micros < kFirstDay * kDayMicros || micros > kLastMicros
               ? std::nullopt
               : std::optional(ServerTimestamp(micros, oid == type::kTimestamp ? "" : "+00"));
  }
  return std::nullopt;
}

// The stream is binary, and verbs read text.
void CheckForms(const outbox::ConnectColumn& column, std::uint32_t oid, std::string_view sent) {
  const std::optional<std::string> written = ServerText(oid, sent);
  if (!written) {
    return;
  }
  std::string of_sent;
  std::string of_written;
  const auto binary = column.Text({pgoutput::Value::Kind::kBinary, sent}, &of_sent);
  const auto text = column.Text({pgoutput::Value::Kind::kText, *written}, &of_written);
  CHECK_EQ(binary.ok(), text.ok()) << oid << " " << *written;
  CHECK(!binary.ok() || *binary == *text) << *written << ": " << *binary << ", " << *text;
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
  CheckForms(*column, oid, bytes);
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
  CHECK_LE(progress->epoch, base::Progress::kEpochMax);
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
