// A tokenizer_config.json beside a tokenizer.json: refused by its name, or what
// it says is done.
#include "text/tokenizer/tokenizer_config.h"

#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz_target.h"
#include "text/tokenizer/json_tokenizer.h"

namespace espalier::fuzz {

namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadWithConfig(
    std::string_view config_text) {
  static const std::string* const tokenizer_text = [] {
    const auto inputs = ReadCorpus("tokenizer_json");
    CHECK(inputs.ok()) << inputs.status().ToString();
    for (const CorpusInput& input : *inputs) {
      if (input.name == "small.json") return new std::string(input.bytes);
    }
    return static_cast<std::string*>(nullptr);
  }();
  CHECK(tokenizer_text != nullptr);
  ASSIGN_OR_RETURN(const TokenizerConfigFile file,
                   TokenizerConfigFile::Parse(config_text, "CONFIG"));
  ASSIGN_OR_RETURN(const TokenizerConfig config, TokenizerConfig::Of(file));
  return JsonTokenizer::Parse(*tokenizer_text, config);
}

FUZZ_TARGET(tokenizer_config, input) {
  const auto tokenizer = LoadWithConfig(input);
  if (!tokenizer.ok()) {
    CheckBadInput(tokenizer.status());
    return;
  }
  const auto tokens = (*tokenizer)->Encode("abc", {.add_special_tokens = true});
  CHECK(tokens.ok()) << tokens.status().ToString();
  const auto value = ParsePythonJson(input);
  CHECK(value.ok() && value->is_object());
}

}  // namespace

}  // namespace espalier::fuzz
