#include "registry/client.h"

#include <nlohmann/json.hpp>

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"

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
  return base::JsonText(body);
}

absl::StatusOr<std::string> SubjectPath(const std::string& subject) {
  RETURN_IF_ERROR(CheckSubject(subject));
  return "/subjects/" + Http::Encode(subject);
}

}  // namespace

absl::Status CheckSubject(const std::string& subject) {
  const std::string path = "/" + subject + "/";
  if (path.find("/./") != std::string::npos || path.find("/../") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("subject '%s' cannot be asked for, because paths are shortened by '.' and "
                        "'..': correct schema_name, or the name of the import",
                        subject));
  }
  return absl::OkStatus();
}

absl::Status Client::Reach() { return StatusFrom(http_.Get("/schemas/types")); }

absl::StatusOr<Registered> Client::LookUp(const std::string& subject, const SchemaText& schema) {
  ASSIGN_OR_RETURN(const std::string path, SubjectPath(subject));
  return RegisteredFrom(http_.Post(path + "?normalize=true", BodyOf(schema)));
}

absl::StatusOr<Registered> Client::Latest(const std::string& subject) {
  ASSIGN_OR_RETURN(const std::string path, SubjectPath(subject));
  return RegisteredFrom(http_.Get(path + "/versions/latest"));
}

absl::StatusOr<Registered> Client::Register(const std::string& subject, const SchemaText& schema) {
  ASSIGN_OR_RETURN(const std::string path, SubjectPath(subject));
  return RegisteredFrom(http_.Post(path + "/versions?normalize=true", BodyOf(schema)));
}

absl::StatusOr<Compatibility> Client::Compare(const std::string& subject,
                                              const SchemaText& schema) {
  ASSIGN_OR_RETURN(const std::string path, SubjectPath(subject));
  return CompatibilityFrom(http_.Post(
      "/compatibility" + path + "/versions/latest?verbose=true&normalize=true", BodyOf(schema)));
}

absl::StatusOr<std::optional<envelope::SchemaGuid>> Client::GuidOf(std::int32_t id) {
  return GuidFrom(http_.Get(absl::StrFormat("/schemas/ids/%d", id)));
}

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMessageShownMax = 600;

// Far more than any registry sends.
constexpr int kValuesMax = 10'000;
constexpr int kDepthMax = 100;

// Stops at what a registry does not send. A tree of it could take a hundred times the memory of the
// text.
class Limits final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Value(); }

  bool boolean(bool /*value*/) override { return Value(); }

  bool number_integer(number_integer_t /*value*/) override { return Value(); }

  bool number_unsigned(number_unsigned_t /*value*/) override { return Value(); }

  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return Value(); }

  bool string(string_t& /*value*/) override { return Value(); }

  bool binary(binary_t& /*value*/) override { return Value(); }

  bool start_object(std::size_t /*elements*/) override { return Open(); }

  bool key(string_t& /*name*/) override { return true; }

  bool end_object() override { return Close(); }

  bool start_array(std::size_t /*elements*/) override { return Open(); }

  bool end_array() override { return Close(); }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool Value() { return ++values_ <= kValuesMax; }

  bool Open() { return ++depth_ <= kDepthMax && Value(); }

  bool Close() {
    --depth_;
    return true;
  }

  int values_ = 0;
  int depth_ = 0;
};

// Discarded: it is no JSON, or none that a registry would send.
Json ReadJson(const std::string& body) {
  Limits limits;
  return Json::sax_parse(body, &limits) ? Json::parse(body, nullptr, /*allow_exceptions=*/false)
                                        : Json(Json::value_t::discarded);
}

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
  Json json = ReadJson(answer->body);
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
std::optional<envelope::SchemaGuid> GuidOf(const std::string& text) {
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

}  // namespace

absl::Status StatusFrom(const absl::StatusOr<HttpAnswer>& answer) {
  return JsonOf(answer).status();
}

absl::StatusOr<Registered> RegisteredFrom(const absl::StatusOr<HttpAnswer>& answer) {
  ASSIGN_OR_RETURN(const Json json, JsonOf(answer));
  Registered registered;
  if (json.is_object()) {
    registered.id = NumberOf(json, "id");
    registered.version = NumberOf(json, "version");
    registered.guid = GuidOf(TextOf(json, "guid"));
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

absl::StatusOr<Compatibility> CompatibilityFrom(const absl::StatusOr<HttpAnswer>& answer) {
  ASSIGN_OR_RETURN(const Json json, JsonOf(answer));
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
        result.reasons += (result.reasons.empty() ? "" : "; ") +
                          message.get<std::string>().substr(0, kMessageShownMax);
      }
    }
  }
  return result;
}

absl::StatusOr<std::optional<envelope::SchemaGuid>> GuidFrom(
    const absl::StatusOr<HttpAnswer>& answer) {
  ASSIGN_OR_RETURN(const Json json, JsonOf(answer));
  return json.is_object() ? GuidOf(TextOf(json, "guid")) : std::nullopt;
}

}  // namespace walpost::registry
