// kTooFewPages: what marks the error of a request that needs more pages.
#pragma once

namespace espalier {

// Payload of the error of a request that needs more pages than there are. The
// owner of the pool can append a hint on how to get more of them.
inline constexpr char kTooFewPages[] = "espalier/too_few_pages";

}  // namespace espalier
