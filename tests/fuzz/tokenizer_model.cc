// A SentencePiece model: refused by its name, or a tokenizer.
#include "base/check.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_laws.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"

namespace espalier::fuzz {

namespace {

FUZZ_TARGET(tokenizer_model, input) {
  const MemoryFile file(input);
  const auto tokenizer = SentencePieceTokenizer::Load(file.path());
  if (tokenizer.ok()) {
    CheckTokenizer(**tokenizer);
    return;
  }
  CheckBadInput(tokenizer.status());
  CHECK(Message(tokenizer.status()).starts_with(file.path()))
      << tokenizer.status().ToString();
}

}  // namespace

}  // namespace espalier::fuzz
