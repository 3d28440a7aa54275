// Encodes lines with a tokenizer, for comparison with other programs
// (tests/text/compare_tokenizers.py).
//
//   encode_lines PATH < LINES
//
// PATH is a tokenizer.json or a SentencePiece model. Each input line is a JSON
// string; each output line is a list of the text's tokens, its tokens with
// special tokens parsed and added, and the decoded text of the former, or an
// object {"error": ...}.
#include <boost/json/array.hpp>
#include <iostream>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

json::array ToArray(const std::vector<TokenId>& tokens) {
  return json::array(tokens.begin(), tokens.end());
}

// Returns the decoded text. Decoding token by token must give the same text, in
// whole characters.
absl::StatusOr<std::string> DecodeBothWays(const Tokenizer& tokenizer,
                                           const std::vector<TokenId>& tokens) {
  ASSIGN_OR_RETURN(const std::string whole, tokenizer.Decode(tokens));
  IncrementalDetokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId token : tokens) {
    std::string part;
    detokenizer.Feed(token, &part);
    if (!IsUtf8(part)) return Internal("half a character at token ", token);
    text += part;
  }
  detokenizer.Finish(&text);
  if (text != whole) return Internal("token by token: ", text, "; ", whole);
  return whole;
}

absl::StatusOr<json::array> Answer(const Tokenizer& tokenizer,
                                   std::string_view line) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(line));
  const std::string text(value.as_string());
  ASSIGN_OR_RETURN(const auto plain, tokenizer.Encode(text));
  ASSIGN_OR_RETURN(const auto with_special,
                   tokenizer.Encode(text, {.add_special_tokens = true,
                                           .parse_special = true}));
  ASSIGN_OR_RETURN(const std::string decoded, DecodeBothWays(tokenizer, plain));
  return json::array{ToArray(plain), ToArray(with_special), decoded};
}

int Run(const std::string& path) {
  const auto tokenizer = Tokenizer::Load(path);
  if (!tokenizer.ok()) {
    std::cerr << Message(tokenizer.status()) << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = Answer(**tokenizer, line);
    std::cout << (answer.ok() ? WriteJson(*answer)
                              : WriteJson(json::object{
                                    {"error", Message(answer.status())}}))
              << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return espalier::Run(argv[1]);
}
