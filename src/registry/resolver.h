// Resolver - which schema a record needs, by its name and subject: exactly the one in our
// descriptors, or the subject's newest.
// Why: what walpost writes must be readable by what it names. Where the application's descriptors
//   are given, only the very same declarations will do; without them, the registry is believed.
// Thread: one owner; blocking.
// Errors: kUnavailable = nothing is known, try again. kAborted = the registry answers, but not
//   about this subject. kOutOfRange = rejected here: the registry was not asked. Any other code is
//   about the schema, in words for an operator.
// Source: docs/schema-registry.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/schema.h"
#include "registry/client.h"
#include "registry/http.h"
#include "registry/schema_text.h"

namespace walpost::registry {

// What a dry run finds.
struct Finding {
  enum class State { kRegistered, kCompatible, kNewSubject, kRejected };

  State state = State::kRegistered;
  std::string text;
};

class Resolver {
 public:
  // `sources` by the numbers in SchemaNeed::source. kInvalidArgument for a descriptor set that
  // cannot be used.
  static absl::StatusOr<std::shared_ptr<Resolver>> Create(
      RegistryOptions options, const std::vector<envelope::FramingOptions>& sources);

  absl::Status Reach() { return client_.Reach(); }

  absl::StatusOr<envelope::Schema> Resolve(const envelope::SchemaNeed& need);

  // Whether Resolve would find it, or could after a registration. Registers nothing.
  absl::StatusOr<Finding> Examine(const envelope::SchemaNeed& need);

  // The messages whose schemas are known without any event; none without a descriptor set.
  std::vector<std::string> RecordsOf(std::uint32_t source) const;

 private:
  struct Source {
    std::string path;
    std::optional<Descriptors> descriptors;
    bool auto_register = false;
  };

  explicit Resolver(RegistryOptions options) : client_(std::move(options)) {}

  absl::StatusOr<envelope::Schema> Find(const envelope::SchemaNeed& need);
  const Source* SourceOf(const envelope::SchemaNeed& need) const;
  absl::Status Check(const envelope::SchemaNeed& need) const;
  absl::StatusOr<const google::protobuf::Descriptor*> Describe(
      const envelope::SchemaNeed& need) const;
  absl::StatusOr<Registered> Exact(const std::string& subject,
                                   const google::protobuf::FileDescriptor& file,
                                   bool auto_register);
  absl::StatusOr<Registered> Found(const std::string& subject,
                                   const google::protobuf::FileDescriptor& file,
                                   SchemaText* schema);
  absl::StatusOr<std::vector<Reference>> References(const google::protobuf::FileDescriptor& file,
                                                    bool auto_register);
  absl::StatusOr<envelope::Schema> Newest(const envelope::SchemaNeed& need);
  absl::Status AddGuid(const envelope::SchemaNeed& need, Registered* registered);

  Client client_;
  std::vector<Source> sources_;
};

}  // namespace walpost::registry
