// A tokenizer_config.json beside a tokenizer.json: refused by its name, or what
// it says is done.
#include "text/tokenizer/tokenizer_config.h"

#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/source_tree.h"
#include "text/tokenizer/json_tokenizer.h"

namespace espalier::fuzz {

namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadWithConfig(
    std::string_view config_text) {
  static const std::string* const tokenizer_text = [] {
    auto text = ReadFile(
        SourcePath("tests/fuzz/corpus/tokenizer_json/small.json"), 1 << 20);
    CHECK(text.ok()) << text.status().ToString();
    return new std::string(*std::move(text));
  }();
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
  const auto value = ParseJson(input);
  CHECK(value.ok() && value->is_object());
}

}  // namespace

}  // namespace espalier::fuzz
