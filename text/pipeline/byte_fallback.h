// Byte tokens of vocabularies with byte fallback: "<0xE2>" is the byte E2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

std::string FallbackPiece(int byte);

// The byte that `piece` stands for, if it is of that form; in either case of
// letters.
std::optional<uint8_t> ByteOfFallbackPiece(std::string_view piece);

}  // namespace espalier
