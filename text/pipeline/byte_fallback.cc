#include "text/pipeline/byte_fallback.h"

#include <charconv>

namespace espalier {

std::string FallbackPiece(int byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::optional<uint8_t> ByteOfFallbackPiece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') {
    return std::nullopt;
  }
  uint8_t byte = 0;
  const char* const end = piece.data() + 5;
  const auto result = std::from_chars(piece.data() + 3, end, byte, 16);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return byte;
}

}  // namespace espalier
