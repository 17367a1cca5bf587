// ReadSchemaRegistry, ReadFraming - `schema_registry`, and how values say their schema.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "config/config.h"
#include "config/reader.h"
#include "envelope/encoder.h"
#include "registry/http.h"

namespace walpost::config {

// security.require_encryption - rejects a configuration with which anything may travel in clear
// text.
// Why: a warning is not read; and what is agreed on when connecting comes after the password. So
//   what must be encrypted is said to the libraries, which then enforce it, and this only looks
//   that it was.
// Source: docs/security.md, "On the way".
void ReadSecurity(MapReader reader, Config* config);

// After all was read.
void CheckEncryption(MapReader* root, const Config& config);

// Of one more conninfo, of a verb: `name` is its option.
absl::Status CheckConninfo(const Config& config, const std::string& name,
                           const std::string& conninfo);

void ReadSchemaRegistry(MapReader reader, registry::RegistryOptions* options);

// `value.schema_registry`. `format` has been read.
void ReadFraming(MapReader reader, bool given, envelope::EncoderOptions* encoder);

}  // namespace walpost::config
