#include "tests/fuzz/tokenizer_laws.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/source_tree.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/json_tokenizer.h"

namespace espalier::fuzz {

namespace {

constexpr std::string_view kTexts[] = {
    "", " ", "abc  ab c", "\u2581a\u00e9\u6f22 12345\n\n<s> don't <unk>",
    // Marks that a normal form joins, splits off or puts in another order.
    "e\u0301t\u00e9", "\u00e9\u1dc2 a\u0323"};

void CheckDecode(const Tokenizer& tokenizer,
                 const std::vector<TokenId>& tokens) {
  const auto text = tokenizer.Decode(tokens);
  CHECK(text.ok()) << text.status().ToString();
  CHECK(IsUtf8(*text)) << *text;
  IncrementalDetokenizer detokenizer(tokenizer);
  std::string streamed;
  for (const TokenId token : tokens) detokenizer.Feed(token, &streamed);
  detokenizer.Finish(&streamed);
  CHECK(streamed == *text) << streamed << "\nis not\n" << *text;
}

void CheckLimit(const Tokenizer& tokenizer, std::string_view text,
                const std::vector<TokenId>& tokens) {
  const auto limited = tokenizer.Encode(text, {.max_tokens = 3});
  if (limited.ok()) {
    CHECK(*limited == tokens) << text;
    return;
  }
  CHECK(limited.status().code() == absl::StatusCode::kOutOfRange)
      << limited.status().ToString();
  // Otherwise the tokens do not spell the text: rules of the model drop
  // characters, and an unknown token represents any number of them.
  const auto decoded = tokenizer.Decode(tokens);
  CHECK(tokens.size() > 3 ||
        std::ranges::count(tokens, tokenizer.special_tokens().unk) > 0 ||
        4 * decoded->size() < text.size())
      << text;
}

}  // namespace

void CheckTokenizer(const Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    for (const bool with_special : {false, true}) {
      const EncodeOptions options = {.add_special_tokens = with_special,
                                     .parse_special = with_special};
      const auto tokens = tokenizer.Encode(text, options);
      const auto again = tokenizer.Encode(text, options);
      CHECK(tokens.status() == again.status()) << again.status().ToString();
      if (!tokens.ok()) {
        CheckBadInput(tokens.status());
        continue;
      }
      CHECK(*tokens == *again) << text;
      for (const TokenId token : *tokens) {
        CHECK(token >= 0 && token < tokenizer.vocab_size()) << token;
        CHECK(with_special || !tokenizer.is_special(token) ||
              token == tokenizer.special_tokens().unk)
            << text << ": " << token;
      }
      CheckDecode(tokenizer, *tokens);
      if (!with_special) CheckLimit(tokenizer, text, *tokens);
    }
  }
  std::vector<TokenId> all;
  for (TokenId token = 0; token < tokenizer.vocab_size() && token < 300;
       ++token) {
    all.push_back(token);
    CHECK(IsUtf8(tokenizer.Spelling(token))) << token;
  }
  CheckDecode(tokenizer, all);
}

std::unique_ptr<Tokenizer> LoadDataTokenizer(const std::string& path) {
  const auto text = ReadFile(SourcePath("tests/data/" + path), 1 << 20);
  CHECK(text.ok()) << text.status().ToString();
  const auto value = ParseJson(*text);
  CHECK(value.ok()) << value.status().ToString();
  auto tokenizer =
      JsonTokenizer::Parse(WriteJson(value->get_object().at("tokenizer")), {});
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

}  // namespace espalier::fuzz
