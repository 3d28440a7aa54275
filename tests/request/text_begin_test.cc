#include "request/text_begin.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

std::vector<TokenId> Spelt(const std::string& text) {
  return EnFrTokenizer().Encode(text).value();
}

// Returns the text of `text`'s tokens after the request's own tokens.
std::string TextAfter(const ModelDescription& model, const Request& request,
                      const std::string& text) {
  return TextOf(Spelt(text), TextBegin(EnFrTokenizer(), model, request),
                StopStrings());
}

TEST(TextBeginTest, ACompletionBeginsWithTheSpaceAfterItsPrompt) {
  const ModelDescription model;
  Request request = {.prompt_tokens = {*EnFrTokenizer().bos_id()},
                     .params = {}};
  EXPECT_EQ(TextAfter(model, request, "gare"), "gare");
  const std::vector<TokenId> text = Spelt("la");
  request.prompt_tokens.insert(request.prompt_tokens.end(), text.begin(),
                               text.end());
  EXPECT_EQ(TextAfter(model, request, "gare"), " gare");
  EXPECT_EQ(TextBefore(EnFrTokenizer(), request.params, request.prompt_tokens),
            "la");
}

TEST(TextBeginTest, AnAnswerIsATextOfItsOwn) {
  const Request request = {
      .prompt_tokens = Spelt("la"), .params = {}, .num_continued = 0};
  EXPECT_EQ(TextAfter(ModelDescription(), request, "gare"), "gare");
}

TEST(TextBeginTest, AfterAnEncoderTheDecoderPromptIsContinued) {
  ModelDescription model;
  model.encoder.emplace().decoder_prompt = {*EnFrTokenizer().bos_id()};
  Request request = {.prompt_tokens = Spelt("the"), .params = {}};
  EXPECT_EQ(TextAfter(model, request, "gare"), "gare");
  for (const TokenId token : Spelt("la")) {
    request.params.decoder_prompt_tokens.push_back(token);
  }
  EXPECT_EQ(TextAfter(model, request, "gare"), " gare");
}

TEST(TextBeginTest, ACharacterThatThePromptBeganIsTheCompletions) {
  const TokenId lead = *EnFrTokenizer().PieceToId("<0xC3>");
  const TokenId rest = *EnFrTokenizer().PieceToId("<0xA9>");
  Request request = {.prompt_tokens = Spelt("caf"), .params = {}};
  request.prompt_tokens.push_back(lead);
  EXPECT_EQ(TextBefore(EnFrTokenizer(), request.params, request.prompt_tokens),
            "caf");
  const IncrementalDetokenizer begin =
      TextBegin(EnFrTokenizer(), ModelDescription(), request);
  EXPECT_EQ(TextOf({&rest, 1}, begin, StopStrings()), "\u00E9");
  EXPECT_EQ(TextOf({}, begin, StopStrings()), "\uFFFD");
}

}  // namespace
}  // namespace espalier::testing
