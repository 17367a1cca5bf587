#include "fuzz/intake_input.h"

#include <algorithm>

#include "base/bytes.h"
#include "support/pgoutput_bytes.h"

namespace walpost::fuzz {

IntakeInput IntakeInput::Split(std::string_view bytes) {
  IntakeInput input;
  base::ByteReader reader(bytes);
  input.settings = reader.U8();
  while (reader.remaining() >= 2) {
    const std::size_t size = reader.U16();
    input.entries.emplace_back(reader.Bytes(std::min(size, reader.remaining())));
  }
  return input;
}

std::string IntakeInput::Join() const {
  testing::WireWriter writer;
  writer.U8(settings);
  for (const std::string& entry : entries) {
    writer.U16(static_cast<std::uint16_t>(entry.size())).Raw(entry);
  }
  return writer.bytes();
}

}  // namespace walpost::fuzz
