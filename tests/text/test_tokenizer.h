// The embedded translator's directory and tokenizer, for the tests of text/.
#pragma once

#include <memory>
#include <string>

#include "base/check.h"
#include "tests/source_tree.h"
#include "text/tokenizer.h"

namespace espalier::testing {

inline std::string EnFrDir() { return SourcePath("models/en-fr"); }

// Loaded once for all tests; 6,000 entries, byte fallback.
inline const Tokenizer& EnFrTokenizer() {
  static const auto tokenizer = Tokenizer::Load(EnFrDir() + "/tokenizer.model");
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  return **tokenizer;
}

}  // namespace espalier::testing
