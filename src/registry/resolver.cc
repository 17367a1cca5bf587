#include "registry/resolver.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "registry/schema_text.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::registry {
namespace {

using envelope::Framing;
using envelope::Schema;
using envelope::SchemaNeed;
using envelope::SchemaType;
using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;

constexpr char kProtobuf[] = "PROTOBUF";

const char* TypeName(SchemaType type) {
  switch (type) {
    case SchemaType::kJson:
      return "JSON";
    case SchemaType::kAvro:
      return "AVRO";
    case SchemaType::kProtobuf:
      break;
  }
  return kProtobuf;
}

const char* WhyNotFound(const std::string& text, bool is_read) {
  if (is_read) {
    return "declares no message";
  }
  return text.size() > kSchemaBytesMax ? "is too large to look for message"
                                       : "cannot be parsed to look for message";
}

Schema SchemaFrom(const Registered& registered, std::vector<std::int32_t> indexes, bool fixed) {
  return Schema{registered.id, registered.guid, std::move(indexes), fixed};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Resolver>> Resolver::Create(
    RegistryOptions options, const std::vector<envelope::FramingOptions>& sources) {
  const std::shared_ptr<Resolver> resolver(new Resolver(std::move(options)));
  for (const envelope::FramingOptions& each : sources) {
    Source source;
    source.path = each.descriptor_set;
    source.auto_register = each.auto_register;
    if (each.framing != Framing::kNone && !each.descriptor_set.empty()) {
      ASSIGN_OR_RETURN(source.descriptors, Descriptors::Read(each.descriptor_set));
    }
    resolver->sources_.push_back(std::move(source));
  }
  return resolver;
}

const Resolver::Source* Resolver::SourceOf(const SchemaNeed& need) const {
  return need.source < sources_.size() ? &sources_[need.source] : nullptr;
}

std::vector<std::string> Resolver::RecordsOf(std::uint32_t source) const {
  return source < sources_.size() && sources_[source].descriptors
             ? sources_[source].descriptors->Records()
             : std::vector<std::string>();
}

// Null: only the registry knows it.
absl::StatusOr<const Descriptor*> Resolver::Describe(const SchemaNeed& need) const {
  const Source* const source = SourceOf(need);
  if (need.type != SchemaType::kProtobuf) {
    return nullptr;
  }
  if (source != nullptr && source->descriptors) {
    if (const Descriptor* const found = source->descriptors->Find(need.record)) {
      return found;
    }
  }
  if (need.record == envelope::kEnvelopeRecord) {
    return v1::Envelope::descriptor();
  }
  if (source != nullptr && source->descriptors) {
    return absl::NotFoundError(absl::StrFormat(
        "descriptor_set %s declares no message %s: make it anew, or correct schema_name",
        source->path, need.record));
  }
  return nullptr;
}

absl::Status Resolver::Check(const SchemaNeed& need) const {
  absl::Status checked = CheckSubject(need.subject);
  if (checked.ok()) {
    checked = Describe(need).status();
  }
  return checked.ok() ? checked : absl::OutOfRangeError(checked.message());
}

absl::StatusOr<Schema> Resolver::Resolve(const SchemaNeed& need) {
  RETURN_IF_ERROR(Check(need));
  absl::StatusOr<Schema> schema = Find(need);
  if (absl::IsUnavailable(schema.status()) && client_.Reach().ok()) {
    return absl::AbortedError(
        absl::StrFormat("the Schema Registry answers, but not about subject '%s': %s", need.subject,
                        std::string(schema.status().message())));
  }
  return schema;
}

absl::StatusOr<Schema> Resolver::Find(const SchemaNeed& need) {
  ASSIGN_OR_RETURN(const Descriptor* const message, Describe(need));
  if (message == nullptr) {
    return Newest(need);
  }
  const Source* const source = SourceOf(need);
  ASSIGN_OR_RETURN(Registered registered, Exact(need.subject, *message->file(),
                                                source != nullptr && source->auto_register));
  RETURN_IF_ERROR(AddGuid(need, &registered));
  // Messages may stand in another order there, and readers go by that.
  if (registered.schema.text.size() > kSchemaBytesMax) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the schema of subject '%s' %s %s: declare it in a smaller file", need.subject,
        WhyNotFound(registered.schema.text, /*is_read=*/false), need.record));
  }
  const auto theirs = ReadSchema(registered.schema.text);
  const auto indexes = theirs ? FindIndexes(*theirs, need.record) : std::nullopt;
  return SchemaFrom(registered, indexes.value_or(IndexesOf(*message)), /*fixed=*/true);
}

absl::Status Resolver::AddGuid(const SchemaNeed& need, Registered* registered) {
  if (need.framing == Framing::kHeader && !registered->guid) {
    ASSIGN_OR_RETURN(registered->guid, client_.GuidOf(registered->id));
  }
  return absl::OkStatus();
}

absl::StatusOr<Schema> Resolver::Newest(const SchemaNeed& need) {
  absl::StatusOr<Registered> newest = client_.Latest(need.subject);
  if (absl::IsNotFound(newest.status())) {
    return base::Annotate(newest.status(),
                          absl::StrFormat("subject '%s': register its schema", need.subject));
  }
  RETURN_IF_ERROR(newest.status());
  if (newest->schema.type != TypeName(need.type)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("subject '%s' holds schemas of type %s, and `type` says %s", need.subject,
                        newest->schema.type, TypeName(need.type)));
  }
  std::vector<std::int32_t> indexes;
  if (need.type == SchemaType::kProtobuf) {
    const auto file = ReadSchema(newest->schema.text);
    auto found = file ? FindIndexes(*file, need.record) : std::nullopt;
    if (!found) {
      return absl::NotFoundError(absl::StrFormat(
          "version %d of subject '%s' %s %s: register what it should be, or correct schema_name",
          newest->version, need.subject, WhyNotFound(newest->schema.text, file.has_value()),
          need.record));
    }
    indexes = *std::move(found);
  }
  RETURN_IF_ERROR(AddGuid(need, &*newest));
  return SchemaFrom(*newest, std::move(indexes), /*fixed=*/false);
}

absl::StatusOr<Registered> Resolver::Exact(const std::string& subject, const FileDescriptor& file,
                                           bool auto_register) {
  SchemaText schema;
  schema.type = kProtobuf;
  ASSIGN_OR_RETURN(schema.references, References(file, auto_register));
  absl::StatusOr<Registered> found = Found(subject, file, &schema);
  if (!absl::IsNotFound(found.status())) {
    return found;
  }
  if (!auto_register) {
    return base::Annotate(
        found.status(),
        absl::StrFormat("subject '%s' does not have %s as it is declared here: register it "
                        "(`walpost check --schemas` says what would be rejected)",
                        subject, file.name()));
  }
  const absl::StatusOr<Registered> registered = client_.Register(subject, schema);
  RETURN_IF_ERROR(base::Annotate(
      registered.status(),
      absl::StrFormat("%s cannot be registered as subject '%s'", file.name(), subject)));
  // The answer may lack the version and the GUID.
  found = client_.LookUp(subject, schema);
  return found.ok() ? found : registered;
}

// In either form, or because the newest version declares the same. `schema` ends up in a form that
// the registry takes.
absl::StatusOr<Registered> Resolver::Found(const std::string& subject, const FileDescriptor& file,
                                           SchemaText* schema) {
  schema->text = AsBase64(file);
  absl::StatusOr<Registered> found = client_.LookUp(subject, *schema);
  if (found.ok() || absl::IsUnavailable(found.status())) {
    return found;
  }
  const bool takes_base64 = absl::IsNotFound(found.status());
  SchemaText as_text = *schema;
  as_text.text = file.DebugString();
  const absl::StatusOr<Registered> by_text = client_.LookUp(subject, as_text);
  if (by_text.ok() || absl::IsUnavailable(by_text.status())) {
    return by_text;
  }
  if (!takes_base64) {
    schema->text = as_text.text;
    found = by_text;
  }
  const absl::StatusOr<Registered> newest = client_.Latest(subject);
  if (absl::IsUnavailable(newest.status())) {
    return newest;
  }
  const auto theirs = newest.ok() && newest->schema.type == kProtobuf
                          ? ReadSchema(newest->schema.text)
                          : std::nullopt;
  return theirs && SameDeclarations(file, *theirs) ? newest : found;
}

// Leaves first. Their subjects are the names in the imports, as with Confluent's serializers.
absl::StatusOr<std::vector<Reference>> Resolver::References(const FileDescriptor& file,
                                                            bool auto_register) {
  std::vector<Reference> references;
  for (int i = 0; i < file.dependency_count(); ++i) {
    const FileDescriptor& import = *file.dependency(i);
    if (IsKnownImport(import.name())) {
      continue;
    }
    const absl::StatusOr<Registered> registered = Exact(import.name(), import, auto_register);
    RETURN_IF_ERROR(base::Annotate(registered.status(),
                                   absl::StrFormat("%s imports %s", file.name(), import.name())));
    references.push_back({import.name(), import.name(), registered->version});
  }
  return references;
}

absl::StatusOr<Finding> Resolver::Examine(const SchemaNeed& need) {
  ASSIGN_OR_RETURN(const Descriptor* const message, Describe(need));
  if (message == nullptr) {
    const absl::StatusOr<Schema> newest = Newest(need);
    if (absl::IsUnavailable(newest.status())) {
      return newest.status();
    }
    return newest.ok() ? Finding{Finding::State::kRegistered,
                                 absl::StrFormat("the newest version has id %d", newest->id)}
                       : Finding{Finding::State::kRejected, std::string(newest.status().message())};
  }
  SchemaText schema;
  schema.type = kProtobuf;
  absl::StatusOr<std::vector<Reference>> references =
      References(*message->file(), /*auto_register=*/false);
  if (absl::IsUnavailable(references.status())) {
    return references.status();
  }
  if (!references.ok()) {
    return Finding{Finding::State::kRejected, std::string(references.status().message())};
  }
  schema.references = *std::move(references);
  const absl::StatusOr<Registered> found = Found(need.subject, *message->file(), &schema);
  if (absl::IsUnavailable(found.status())) {
    return found.status();
  }
  if (found.ok()) {
    return Finding{Finding::State::kRegistered, absl::StrFormat("registered, id %d", found->id)};
  }
  const absl::StatusOr<Compatibility> compared = client_.Compare(need.subject, schema);
  if (absl::IsUnavailable(compared.status())) {
    return compared.status();
  }
  if (absl::IsNotFound(compared.status())) {
    return Finding{Finding::State::kNewSubject, "the subject does not exist yet"};
  }
  if (!compared.ok()) {
    return Finding{Finding::State::kRejected, std::string(compared.status().message())};
  }
  return compared->compatible
             ? Finding{Finding::State::kCompatible, "not registered yet, and compatible"}
             : Finding{Finding::State::kRejected,
                       absl::StrFormat("not compatible with the newest version: %s",
                                       compared->reasons.empty() ? "the registry does not say why"
                                                                 : compared->reasons)};
}

}  // namespace walpost::registry
