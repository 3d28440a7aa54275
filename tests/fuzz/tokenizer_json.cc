// A tokenizer.json: refused, or a tokenizer.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_laws.h"
#include "text/tokenizer/json_tokenizer.h"

namespace espalier::fuzz {

namespace {

FUZZ_TARGET(tokenizer_json, input) {
  const auto tokenizer = JsonTokenizer::Parse(input, {});
  if (tokenizer.ok()) {
    CheckTokenizer(**tokenizer);
  } else {
    CheckBadInput(tokenizer.status());
  }
}

}  // namespace

}  // namespace espalier::fuzz
