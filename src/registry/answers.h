// Answers - what a Schema Registry, or whatever stands in its place, answers: checked, and taken apart.
// Why: apart from the requests, so that any bytes can be tried on it.
// Thread: free functions.
// Units/limits: what is shown of an answer's own text is cut. An answer with more values than a registry sends,
//   or nested deeper, is none of a registry.
// Errors: as in client.h.
// Source: Confluent's Schema Registry API.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "envelope/schema.h"
#include "registry/client.h"
#include "registry/http.h"

namespace walpost::registry {

// Ok for JSON with code 200.
absl::Status StatusFrom(const absl::StatusOr<HttpAnswer>& answer);

absl::StatusOr<Registered> RegisteredFrom(const absl::StatusOr<HttpAnswer>& answer);
absl::StatusOr<Compatibility> CompatibilityFrom(const absl::StatusOr<HttpAnswer>& answer);
absl::StatusOr<std::optional<envelope::SchemaGuid>> GuidFrom(
    const absl::StatusOr<HttpAnswer>& answer);

}  // namespace walpost::registry
