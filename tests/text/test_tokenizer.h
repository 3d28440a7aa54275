// The embedded translator's directory and tokenizer, for the tests of text/.
#pragma once

#include <memory>
#include <string>

#include "base/check.h"
#include "tests/source_tree.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

inline std::string EnFrDir() { return SourcePath("models/en-fr"); }

// Loaded once for all tests; 6,000 entries, byte fallback.
inline std::shared_ptr<const Tokenizer> SharedEnFrTokenizer() {
  static const auto tokenizer = [] {
    auto loaded = Tokenizer::Load(EnFrDir() + "/tokenizer.model");
    CHECK(loaded.ok()) << loaded.status().ToString();
    return std::shared_ptr<const Tokenizer>(*std::move(loaded));
  }();
  return tokenizer;
}
inline const Tokenizer& EnFrTokenizer() { return *SharedEnFrTokenizer(); }

}  // namespace espalier::testing
