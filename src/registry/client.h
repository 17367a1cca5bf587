// Client - the calls of Confluent's Schema Registry API that walpost makes.
// Thread: one owner; blocking.
// Errors: kUnavailable = nothing is known about the schema: the registry is away or overloaded,
//   lets us not in (401, 403), or what answers is no registry. About the schema: kNotFound (no such
//   subject, version or schema), kFailedPrecondition (not compatible), kInvalidArgument (not a
//   schema, or not a subject).
// Source: Confluent's Schema Registry API; error codes 404xx, 409, 422xx.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/schema.h"
#include "registry/http.h"

namespace walpost::registry {

struct Reference {
  std::string name;  // as in the import
  std::string subject;
  std::int32_t version = 0;
};

struct SchemaText {
  std::string type;  // PROTOBUF, JSON, AVRO
  std::string text;
  std::vector<Reference> references;
};

struct Registered {
  std::int32_t id = 0;
  std::int32_t version = 0;  // 0 = not known
  std::optional<envelope::SchemaGuid> guid;
  SchemaText schema;  // where the registry returns it
};

struct Compatibility {
  bool compatible = false;
  std::string reasons;
};

// kInvalidArgument: a part of it is '.' or '..', which servers and proxies take out of a URL.
absl::Status CheckSubject(const std::string& subject);

class Client {
 public:
  explicit Client(RegistryOptions options) : http_(std::move(options)) {}

  // Whether it answers, and lets us in.
  absl::Status Reach();

  absl::StatusOr<Registered> LookUp(const std::string& subject, const SchemaText& schema);
  absl::StatusOr<Registered> Latest(const std::string& subject);
  absl::StatusOr<Registered> Register(const std::string& subject, const SchemaText& schema);
  // With the newest version of the subject, which must exist.
  absl::StatusOr<Compatibility> Compare(const std::string& subject, const SchemaText& schema);
  // Nothing: this registry has none.
  absl::StatusOr<std::optional<envelope::SchemaGuid>> GuidOf(std::int32_t id);

 private:
  Http http_;
};

// Answers - what a Schema Registry, or whatever stands in its place, answers: checked, and taken
// apart.
// Why: apart from the requests, so that any bytes can be tried on it.
// Thread: free functions.
// Units/limits: what is shown of an answer's own text is cut. An answer with more values than a
//   registry sends, or nested deeper, is none of a registry.
// Errors: as in client.h.
// Source: Confluent's Schema Registry API.

// Ok for JSON with code 200.
absl::Status StatusFrom(const absl::StatusOr<HttpAnswer>& answer);

absl::StatusOr<Registered> RegisteredFrom(const absl::StatusOr<HttpAnswer>& answer);
absl::StatusOr<Compatibility> CompatibilityFrom(const absl::StatusOr<HttpAnswer>& answer);
absl::StatusOr<std::optional<envelope::SchemaGuid>> GuidFrom(
    const absl::StatusOr<HttpAnswer>& answer);

}  // namespace walpost::registry
