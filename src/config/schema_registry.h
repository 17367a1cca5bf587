// ReadSchemaRegistry, ReadFraming - `schema_registry`, and how values say their schema.
#pragma once

#include "config/reader.h"
#include "envelope/encoder.h"
#include "registry/options.h"

namespace walpost::config {

registry::RegistryOptions ReadSchemaRegistry(MapReader reader);

// `value.schema_registry`. `format` has been read.
void ReadFraming(MapReader reader, bool given, envelope::EncoderOptions* encoder);

// topic, record, topic_record, or the template itself.
std::string SubjectName(const std::string& pattern);

}  // namespace walpost::config
