// An input is the text of a headers column, of a topic template, of a topic and of a
// tracingspancontext column at once. Another
// parser says what is JSON; a template written out again must be the text it was.
#include <glog/logging.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "outbox/headers_column.h"
#include "outbox/topic_rules.h"

namespace walpost::fuzz {
namespace {

// Whether these are headers; a null member is none, a number is a number's text.
bool IsHeaders(const nlohmann::json& object) {
  if (!object.is_object()) {
    return false;
  }
  std::size_t headers = 0;
  for (const auto& [name, value] : object.items()) {
    if (name.empty() || value.is_structured()) {
      return false;
    }
    headers += value.is_null() ? 0 : 1;
  }
  return headers <= outbox::kHeadersMax;
}

// The header's value must be the member's; floating-point numbers keep digits that a double loses.
void CheckValue(const nlohmann::json& member, std::string_view value) {
  if (member.is_string()) {
    CHECK_EQ(member.get_ref<const std::string&>(), value);
  } else if (member.is_number_float()) {
    CHECK_EQ(nlohmann::json::parse(value).get<double>(), member.get<double>());
  } else {
    CHECK_EQ(member.dump(), value);
  }
}

void CheckHeaders(std::string_view text) {
  outbox::HeadersColumn column;
  const auto headers = column.Parse(text);
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!headers.ok()) {
    CHECK(absl::IsInvalidArgument(headers.status())) << headers.status();
    CHECK(!IsHeaders(document)) << headers.status();
    return;
  }
  if (document.is_null()) {  // JSON's null is no headers
    CHECK(headers->empty());
    return;
  }
  CHECK(document.is_object());
  std::set<std::string_view> names;
  for (const outbox::Header& header : *headers) {
    CHECK(!header.name.empty());
    CHECK(names.insert(header.name).second) << header.name;
    CheckValue(document.at(std::string(header.name)), header.value);
  }
  for (const auto& [name, value] : document.items()) {
    CHECK_EQ(names.count(name), value.is_null() ? 0U : 1U) << name;
  }
}

void CheckTopic(std::string_view text) {
  if (outbox::IsLegalTopic(text)) {
    CHECK_LE(text.size(), 249U);
    const auto itself = outbox::TopicTemplate::Parse(text);
    CHECK(itself.ok() && itself->parts().size() == 1) << text;
  }
  const auto parsed = outbox::TopicTemplate::Parse(text);
  if (!parsed.ok()) {
    CHECK(absl::IsInvalidArgument(parsed.status())) << parsed.status();
    return;
  }
  std::string again;
  bool after_literal = false;
  for (const outbox::TopicTemplate::Part& part : parsed->parts()) {
    CHECK(!part.text.empty());
    CHECK(part.is_placeholder || !after_literal) << "two literals side by side";
    after_literal = !part.is_placeholder;
    again += part.is_placeholder ? "{" + part.text + "}" : part.text;
  }
  CHECK_EQ(again, text);
}

void CheckTraceContext(std::string_view text) {
  const std::string_view found = outbox::TraceparentOf(text);
  if (found.empty()) {
    return;
  }
  CHECK(found.data() >= text.data() && found.data() + found.size() <= text.data() + text.size());
  CHECK_EQ(found.find_first_of("\r\n\\"), std::string_view::npos);
  CHECK_EQ(outbox::TraceparentOf("traceparent=" + std::string(found)), found);
}

}  // namespace

std::vector<std::string> MoreInputs() {
  constexpr int kMany = 100'000;
  std::string nested;
  std::string members = "{";
  std::string placeholders;
  for (int i = 0; i < kMany; ++i) {
    nested += "{\"a\":";
    members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
    placeholders += "{id}";
  }
  return {nested, members + "}", placeholders};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const walpost::fuzz::Bounds bounds;
  walpost::fuzz::CheckHeaders(text);
  walpost::fuzz::CheckTopic(text);
  walpost::fuzz::CheckTraceContext(text);
  bounds.Check();
  return 0;
}
