#include "registry/client.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "registry/answers.h"

namespace walpost::registry {
namespace {

using Json = nlohmann::json;

std::string BodyOf(const SchemaText& schema) {
  Json body = {{"schemaType", schema.type}, {"schema", schema.text}};
  if (!schema.references.empty()) {
    body["references"] = Json::array();
    for (const Reference& reference : schema.references) {
      body["references"].push_back({{"name", reference.name},
                                    {"subject", reference.subject},
                                    {"version", reference.version}});
    }
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string SubjectPath(const std::string& subject) { return "/subjects/" + Http::Encode(subject); }

}  // namespace

absl::Status Client::Reach() { return StatusFrom(http_.Get("/schemas/types")); }

absl::StatusOr<Registered> Client::LookUp(const std::string& subject, const SchemaText& schema) {
  return RegisteredFrom(http_.Post(SubjectPath(subject) + "?normalize=true", BodyOf(schema)));
}

absl::StatusOr<Registered> Client::Latest(const std::string& subject) {
  return RegisteredFrom(http_.Get(SubjectPath(subject) + "/versions/latest"));
}

absl::StatusOr<Registered> Client::Register(const std::string& subject, const SchemaText& schema) {
  return RegisteredFrom(
      http_.Post(SubjectPath(subject) + "/versions?normalize=true", BodyOf(schema)));
}

absl::StatusOr<Compatibility> Client::Compare(const std::string& subject,
                                              const SchemaText& schema) {
  return CompatibilityFrom(http_.Post(
      "/compatibility" + SubjectPath(subject) + "/versions/latest?verbose=true&normalize=true",
      BodyOf(schema)));
}

absl::StatusOr<std::optional<envelope::SchemaGuid>> Client::GuidOf(std::int32_t id) {
  return GuidFrom(http_.Get(absl::StrFormat("/schemas/ids/%d", id)));
}

}  // namespace walpost::registry
