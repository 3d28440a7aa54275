// Logits of any transformer, on any device, compared with its twin's
// (transformer_reference.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "exec_request/model.h"
#include "tests/model/tiny_model.h"

namespace espalier::testing {

// For float32: logits of tiny models are near 1, after some hundred roundings
// of 2^-24.
inline constexpr double kFloat32Tolerance = 1e-5;

std::vector<TokenId> RandomTokens(int count, int vocab_size, int seed);

// Heads to key/value heads 1, 2, 4 and 5, head sizes, tied or not, every dtype.
std::vector<TinyShape> TinyShapes();
// One of everything, but for the tokens and the size of its head.
TinyShape SmallestShape(int head_dim);

// A model on its way to a test: `tiny`, with float32 arithmetic and pages of
// `page_size` tokens.
using LoadTinyModel =
    std::function<std::unique_ptr<Model>(const TinyModel& tiny, int page_size)>;

// Expects the twin's logits after every token, for each of `shapes`, at several
// page sizes, fed in several chunks. Stops at the first that differ.
void ExpectMatchesTwin(const std::vector<TinyShape>& shapes,
                       const LoadTinyModel& load);

}  // namespace espalier::testing
