// SHA-256: a digest that identifies contents. No two contents with one digest
// are known, so equal digests mean equal contents even if callers choose them.
// For hash tables base/hash.h is faster.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// Returns the 32 bytes of the digest.
// Source: NIST FIPS 180-4, https://doi.org/10.6028/NIST.FIPS.180-4.
std::string Sha256(std::string_view bytes);

}  // namespace espalier
