#include "config/schema_registry.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "config/document.h"
#include "kafka/properties.h"
#include "postgres/conninfo.h"
#include "registry/http.h"

namespace walpost::config {
namespace {

constexpr char kRequired[] = "security.require_encryption is true, but";

// Empty when it is right.
std::string ProblemOf(const std::string& conninfo) {
  const auto settings = postgres::ResolveConninfo(conninfo);
  const std::string why = settings.ok() ? postgres::WhyMayBeClearText(*settings)
                                        : std::string(settings.status().message());
  return why.empty()
             ? ""
             : absl::StrFormat("%s %s: write sslmode=verify-full and sslrootcert", kRequired, why);
}

}  // namespace

absl::Status CheckConninfo(const Config& config, const std::string& name,
                           const std::string& conninfo) {
  const std::string problem =
      config.require_encryption && !conninfo.empty() ? ProblemOf(conninfo) : "";
  return problem.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError(absl::StrFormat("%s: %s", name, problem));
}

void ReadSecurity(MapReader reader, Config* config) {
  reader.Choice("require_encryption", {"false", "true"}, &config->require_encryption);
  reader.Finish();
}

void CheckEncryption(MapReader* root, const Config& config) {
  if (!config.require_encryption) {
    return;
  }
  for (const Key& key : KeysOf(config)) {
    if (key.form == Key::Form::kConninfo &&
        (!key.words[0].empty() || key.path == "source.conninfo")) {  // else it is not used
      root->Problem(key.path, ProblemOf(key.words[0]));
    }
  }
  if (const std::string why = kafka::WhyMayBeClearText(config.run.kafka); !why.empty()) {
    root->Problem(
        "sink.kafka.properties",
        absl::StrFormat("%s %s: set security.protocol to SSL or SASL_SSL", kRequired, why));
  }
  if (const std::string url = registry::ClearTextUrl(config.run.registry); !url.empty()) {
    root->Problem("schema_registry.url",
                  absl::StrFormat("%s %s is not: write https://", kRequired, url));
  }
}

namespace {

using envelope::Framing;
using envelope::FramingOptions;
using envelope::SchemaType;
using std::chrono::milliseconds;

constexpr std::size_t kSubjectMax = 200;
constexpr std::pair<const char*, const char*> kSubjects[] = {
    {"topic", "{topic}-value"}, {"record", "{record}"}, {"topic_record", "{topic}-{record}"}};

bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f;
  });
}

// Never with the URL: a password may stand in it.
std::string UrlProblem(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  if (url.rfind("http://", 0) != 0 && url.rfind("https://", 0) != 0) {
    return "write http:// or https://, several with commas between them";
  }
  if (!IsPlain(url) || url.find_first_of("?#") != std::string::npos || url.size() == host) {
    return "a URL has a host, and neither spaces nor a query";
  }
  if (url.find('@') != std::string::npos) {
    return "give name and password as `username` and `password`, since a URL is shown";
  }
  return "";
}

void ReadUrls(MapReader* reader, registry::RegistryOptions* options) {
  std::string urls = absl::StrJoin(options->urls, ",");
  if (!reader->Text("url", &urls, Key::Form::kGiven) || urls.empty()) {
    return;
  }
  for (const absl::string_view each : absl::StrSplit(urls, ',')) {
    std::string url(absl::StripAsciiWhitespace(each));
    while (!url.empty() && url.back() == '/') {
      url.pop_back();
    }
    reader->Problem("url", UrlProblem(url));
    options->urls.push_back(std::move(url));
  }
}

// What the template leaves when its placeholders are gone.
std::string WithoutPlaceholders(std::string text) {
  for (const std::string_view placeholder : {"{topic}", "{record}"}) {
    for (std::size_t at = text.find(placeholder); at != std::string::npos;
         at = text.find(placeholder)) {
      text.erase(at, placeholder.size());
    }
  }
  return text;
}

// topic, record, topic_record, or the template itself.
std::string SubjectName(const std::string& pattern) {
  for (const auto& [name, text] : kSubjects) {
    if (pattern == text) {
      return name;
    }
  }
  return pattern;
}

void ReadSubject(MapReader* reader, FramingOptions* options) {
  std::string subject = SubjectName(options->subject);
  reader->Text("subject", &subject);
  const auto named = std::find_if(std::begin(kSubjects), std::end(kSubjects),
                                  [&](const auto& each) { return subject == each.first; });
  options->subject = named == std::end(kSubjects) ? subject : named->second;
  if (named != std::end(kSubjects)) {
    return;
  }
  const std::string rest = WithoutPlaceholders(subject);
  const bool one_word = rest == subject && subject.find_first_of("-.:/") == std::string::npos;
  if (subject.empty() || subject.size() > kSubjectMax || !IsPlain(subject) ||
      rest.find_first_of("{}") != std::string::npos) {
    reader->Problem("subject",
                    absl::StrFormat("'%s': topic, record, topic_record, or a template with {topic} "
                                    "and {record}, at most %u characters",
                                    subject, kSubjectMax));
  } else if (one_word) {
    const std::string meant = DidYouMean(subject, {"topic", "record", "topic_record"});
    if (!meant.empty()) {
      reader->Problem("subject",
                      absl::StrFormat("'%s' is the same subject for all events%s", subject, meant));
    }
  }
}

void CheckFraming(MapReader* reader, const envelope::EncoderOptions& encoder) {
  using envelope::ValueFormat;
  const FramingOptions& options = encoder.framing;
  const bool is_envelope = encoder.format == ValueFormat::kEnvelope;
  if (encoder.format == ValueFormat::kCloudEvents &&
      encoder.cloud_events.mode != envelope::CloudEventMode::kBinary) {
    reader->Problem("framing",
                    "the value of a structured CloudEvent is not the payload, so it has no schema "
                    "of a registry: use `cloudevents: {mode: binary}`, or framing: none");
  }
  if (is_envelope && options.type != SchemaType::kProtobuf) {
    reader->Problem("type", "format: envelope is protobuf");
  }
  if (is_envelope && !options.descriptor_set.empty()) {
    reader->Problem("descriptor_set", "that of walpost.v1.Envelope is built in");
  }
  if (!options.descriptor_set.empty() && options.type != SchemaType::kProtobuf) {
    reader->Problem("descriptor_set", "is for type: protobuf");
  }
  if (options.auto_register && !is_envelope && options.descriptor_set.empty()) {
    reader->Problem("auto_register", "what is to be registered is said by `descriptor_set`");
  }
}

}  // namespace

void ReadSchemaRegistry(MapReader reader, registry::RegistryOptions* options) {
  using Form = Key::Form;
  reader.ShowOnlyIf(!options->urls.empty());
  ReadUrls(&reader, options);
  reader.Text("username", &options->username, Form::kGiven);
  reader.Text("password", &options->password, Form::kSecret);
  reader.Text("token", &options->token, Form::kSecret);
  reader.Text("ca_file", &options->ca_file, Form::kGiven);
  reader.Text("certificate_file", &options->certificate_file, Form::kGiven);
  reader.Text("key_file", &options->key_file, Form::kGiven);
  if (options->username.empty() != options->password.empty()) {
    reader.Problem("username", "username and password belong together");
  }
  if (!options->token.empty() && !options->username.empty()) {
    reader.Problem("token", "either a token, or username and password");
  }
  if (options->certificate_file.empty() && !options->key_file.empty()) {
    reader.Problem("key_file", "belongs to `certificate_file`");
  }
  reader.Duration("timeout", &options->timeout, milliseconds(100), milliseconds(60'000));
  reader.Duration("refresh", &options->refresh, milliseconds(1'000));
  reader.Finish();
}

void ReadFraming(MapReader reader, bool given, envelope::EncoderOptions* encoder) {
  FramingOptions* const options = &encoder->framing;
  reader.ShowOnlyIf(options->framing != Framing::kNone);
  reader.Choice("framing", {"none", "payload", "header"}, &options->framing);
  ReadSubject(&reader, options);
  reader.Choice("type", {"protobuf", "json", "avro"}, &options->type);
  reader.Text("descriptor_set", &options->descriptor_set, Key::Form::kGiven);
  reader.Choice("auto_register", {"false", "true"}, &options->auto_register);
  if (options->framing != Framing::kNone) {
    CheckFraming(&reader, *encoder);
  } else if (given && (options->auto_register || !options->descriptor_set.empty())) {
    reader.Problem("framing", "without it nothing else here has an effect: payload or header");
  }
  reader.Finish();
}

}  // namespace walpost::config
