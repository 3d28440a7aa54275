// kTooFewPages: payload that marks the error of a request without enough pages.
#pragma once

namespace espalier {

// Type URL of the payload. The owner of the pool can append a hint on how to
// get more pages.
inline constexpr char kTooFewPages[] = "espalier/too_few_pages";

}  // namespace espalier
