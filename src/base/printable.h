// Printable - foreign text for people: without what a terminal obeys, and no longer than a line bears.
// Why: who writes events, names tables or answers over the network decides about text that an operator
//   reads in a terminal. It must not move the cursor, change what stands there, or fill a disk.
// Thread: free functions.
// Units/limits: bytes.
// Source: ECMA-48 (control characters), Unicode's bidirectional formatting characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace walpost::base {

// Of one text of somebody else's, such as an event's id.
inline constexpr std::size_t kShownBytesMax = 1'000;
// Of a whole message, which may quote several.
inline constexpr std::size_t kMessageBytesMax = 4'000;

// As \xNN: control characters (C0, DEL, C1), what changes the order of characters on the line, and bytes
// that are no UTF-8. All else is as it was. A result of more than `bytes_max` bytes (0 = no limit) ends
// before the character that exceeds them, and "..." follows.
std::string Printable(std::string_view text, std::size_t bytes_max = 0);

// The same for text of several lines: line feeds stay.
std::string PrintableLines(std::string_view text);

// The text, or its beginning and its end with the number of bytes left out between them: what was quoted
// in a message stands in the middle of what it says.
std::string Cut(std::string_view text, std::size_t bytes_max = kShownBytesMax);

}  // namespace walpost::base
