// Streamed texts equal the decoded text of all tokens, cut at the first stop.
#include "text/text_stream.h"

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_laws.h"
#include "tests/source_tree.h"

namespace espalier::fuzz {

namespace {

const Tokenizer& StreamTokenizer(size_t choice) {
  static const auto* const tokenizers = [] {
    auto en_fr = Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    CHECK(en_fr.ok()) << en_fr.status().ToString();
    auto* const loaded = new std::vector<std::unique_ptr<Tokenizer>>;
    loaded->push_back(*std::move(en_fr));
    for (const char* const name : {"qwen", "sentencepiece_bpe", "falcon"}) {
      loaded->push_back(
          LoadDataTokenizer(std::string("tokenizers/") + name + ".json"));
    }
    return loaded;
  }();
  return *(*tokenizers)[choice % tokenizers->size()];
}

// Two bytes a token; 16 of these are outside the vocabulary.
std::vector<TokenId> TokensOf(std::string_view bytes, int vocab_size) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const int number = static_cast<unsigned char>(bytes[i]) << 8 |
                       static_cast<unsigned char>(bytes[i + 1]);
    tokens.push_back(number % (vocab_size + 16));
  }
  return tokens;
}

std::string Streamed(const std::vector<TokenId>& tokens,
                     const Tokenizer& tokenizer, const StopStrings& stops,
                     const TextOptions& options) {
  TextStream stream(tokenizer, stops, options);
  std::string text;
  const auto add = [&](const TextPiece& piece) {
    CHECK(IsUtf8(piece.text)) << piece.text;
    text += piece.text;
  };
  for (const TokenId token : tokens) {
    TextStream fork = stream;  // a beam that is not chosen
    const TextPiece expected = fork.Feed(token);
    const TextPiece piece = stream.Feed(token);
    CHECK(piece.text == expected.text);
    add(piece);
  }
  add(stream.Finish());
  return text;
}

// The tokenizer and options, min_new_tokens, a stop up to the line's end, and
// tokens.
FUZZ_TARGET(text_stream, input) {
  const size_t choice = TakeChoice(&input);
  const Tokenizer& tokenizer = StreamTokenizer(choice / 2);
  const TextOptions options = {
      .include_stop = choice % 2 == 1,
      .min_new_tokens = static_cast<int>(TakeChoice(&input) % 8)};
  const std::string stop(input.substr(0, input.find('\n')));
  input.remove_prefix(std::min(stop.size() + 1, input.size()));
  auto stops = StopStrings::Create({stop});
  if (!stops.ok()) stops = StopStrings();
  const auto tokens = TokensOf(input, tokenizer.vocab_size());

  const StopStrings none;
  const auto whole = tokenizer.Decode(tokens);
  CHECK(whole.ok()) << whole.status().ToString();
  CHECK(Streamed(tokens, tokenizer, none, {}) == *whole) << *whole;
  const std::string text = Streamed(tokens, tokenizer, *stops, options);
  CHECK(text == TextOf(tokens, tokenizer, *stops, options)) << text;
  CHECK(whole->starts_with(text)) << text;
  if (options.min_new_tokens > 0 || stops->stops().empty()) return;
  const size_t at = whole->find(stop);
  const size_t size = options.include_stop ? stop.size() : 0;
  CHECK(text == whole->substr(0, at == whole->npos ? at : at + size)) << text;
}

}  // namespace

}  // namespace espalier::fuzz
