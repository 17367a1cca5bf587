#include "registry/client.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::registry {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMessageShownMax = 600;

absl::Status NoRegistry(const HttpAnswer& answer) {
  return absl::UnavailableError(absl::StrFormat(
      "what answers at %s is no Schema Registry (HTTP %d, and no JSON that one would "
      "send): correct schema_registry.url, with its path if it has one",
      answer.url, answer.code));
}

absl::Status ErrorOf(const HttpAnswer& answer, const Json& json) {
  if (answer.code == 401 || answer.code == 403) {
    return absl::UnavailableError(absl::StrFormat(
        "the Schema Registry at %s lets walpost not in (HTTP %d): correct schema_registry.username "
        "and password, or token, or grant it the right to read",
        answer.url, answer.code));
  }
  const auto code = json.is_object() ? json.find("error_code") : json.end();
  if (!json.is_object() || code == json.end() || !code->is_number_integer()) {
    return NoRegistry(answer);
  }
  std::string message = "no message";
  if (const auto found = json.find("message"); found != json.end() && found->is_string()) {
    message = found->get<std::string>().substr(0, kMessageShownMax);
  }
  const std::string text =
      absl::StrFormat("the Schema Registry says: %s (%d)", message, code->get<std::int64_t>());
  if (answer.code == 404 && code->get<std::int64_t>() / 100 == 404) {
    return absl::NotFoundError(text);
  }
  if (answer.code == 409) {
    return absl::FailedPreconditionError(text);
  }
  if (answer.code == 422 || answer.code == 400) {
    return absl::InvalidArgumentError(text);
  }
  return absl::UnavailableError(
      absl::StrFormat("HTTP %d from %s: %s", answer.code, answer.url, text));
}

absl::StatusOr<Json> JsonOf(const absl::StatusOr<HttpAnswer>& answer) {
  RETURN_IF_ERROR(answer.status());
  Json json = Json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  if (answer->code != 200) {
    return ErrorOf(*answer, json);
  }
  if (json.is_discarded()) {
    return NoRegistry(*answer);
  }
  return json;
}

std::string TextOf(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int32_t NumberOf(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) {
    return 0;
  }
  const auto number = found->get<std::int64_t>();
  return number < 0 || number > std::numeric_limits<std::int32_t>::max()
             ? 0
             : static_cast<std::int32_t>(number);
}

// With or without hyphens; nothing for what is no GUID.
std::optional<envelope::SchemaGuid> GuidFrom(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    if (c != '-') {
      digits += c;
    }
  }
  envelope::SchemaGuid guid = {};
  if (digits.size() != 2 * guid.size() ||
      digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < guid.size(); ++i) {
    guid[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
  }
  return guid;
}

absl::StatusOr<Registered> RegisteredFrom(const Json& json) {
  Registered registered;
  if (json.is_object()) {
    registered.id = NumberOf(json, "id");
    registered.version = NumberOf(json, "version");
    registered.guid = GuidFrom(TextOf(json, "guid"));
    registered.schema.type = TextOf(json, "schemaType");
    registered.schema.text = TextOf(json, "schema");
  }
  if (registered.schema.type.empty()) {
    registered.schema.type = "AVRO";  // the oldest, and what is left out
  }
  if (registered.id == 0) {
    return absl::UnavailableError(
        "the Schema Registry answers without a schema id: is schema_registry.url right?");
  }
  return registered;
}

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

absl::Status Client::Reach() { return JsonOf(http_.Get("/schemas/types")).status(); }

absl::StatusOr<Registered> Client::LookUp(const std::string& subject, const SchemaText& schema) {
  ASSIGN_OR_RETURN(const Json json,
                   JsonOf(http_.Post(SubjectPath(subject) + "?normalize=true", BodyOf(schema))));
  return RegisteredFrom(json);
}

absl::StatusOr<Registered> Client::Latest(const std::string& subject) {
  ASSIGN_OR_RETURN(const Json json, JsonOf(http_.Get(SubjectPath(subject) + "/versions/latest")));
  return RegisteredFrom(json);
}

absl::StatusOr<Registered> Client::Register(const std::string& subject, const SchemaText& schema) {
  ASSIGN_OR_RETURN(
      const Json json,
      JsonOf(http_.Post(SubjectPath(subject) + "/versions?normalize=true", BodyOf(schema))));
  return RegisteredFrom(json);
}

absl::StatusOr<Compatibility> Client::Compare(const std::string& subject,
                                              const SchemaText& schema) {
  ASSIGN_OR_RETURN(const Json json,
                   JsonOf(http_.Post("/compatibility" + SubjectPath(subject) +
                                         "/versions/latest?verbose=true&normalize=true",
                                     BodyOf(schema))));
  const auto compatible = json.is_object() ? json.find("is_compatible") : json.end();
  if (!json.is_object() || compatible == json.end() || !compatible->is_boolean()) {
    return absl::UnavailableError(
        "the Schema Registry does not say whether the schema is compatible: is schema_registry.url "
        "right?");
  }
  Compatibility result;
  result.compatible = compatible->get<bool>();
  if (const auto messages = json.find("messages"); messages != json.end() && messages->is_array()) {
    for (const Json& message : *messages) {
      if (message.is_string() && result.reasons.size() < kMessageShownMax) {
        result.reasons += (result.reasons.empty() ? "" : "; ") + message.get<std::string>();
      }
    }
  }
  return result;
}

absl::StatusOr<std::optional<envelope::SchemaGuid>> Client::GuidOf(std::int32_t id) {
  ASSIGN_OR_RETURN(const Json json, JsonOf(http_.Get(absl::StrFormat("/schemas/ids/%d", id))));
  return json.is_object() ? GuidFrom(TextOf(json, "guid")) : std::nullopt;
}

}  // namespace walpost::registry
