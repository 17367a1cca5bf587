// ReadSchemaRegistry, ReadFraming - `schema_registry`, and how values say their schema.
#pragma once

#include "config/reader.h"
#include "envelope/encoder.h"
#include "registry/options.h"

namespace walpost::config {

void ReadSchemaRegistry(MapReader reader, registry::RegistryOptions* options);

// `value.schema_registry`. `format` has been read.
void ReadFraming(MapReader reader, bool given, envelope::EncoderOptions* encoder);

}  // namespace walpost::config
