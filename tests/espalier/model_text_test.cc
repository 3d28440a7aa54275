#include "espalier/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrTokenizer;

// The caller has given a text, and no tokens that an index could be of.
TEST(PromptTokensTest, PaddingWithoutAPositionIsNamedByItsText) {
  constexpr TokenId kPadding = 3;
  const std::string text = "ab" + EnFrTokenizer().Piece(kPadding) + "c";
  ModelDescription model;
  model.encoder = {.max_source_tokens = 64, .decoder_prompt = {1}};
  const auto tokens_of = [&](bool parse_special) {
    return PromptTokens(text, PromptTemplate(), EnFrTokenizer(), model,
                        /*max_tokens=*/64, parse_special);
  };
  EXPECT_OK(tokens_of(true).status());
  model.encoder->token_without_position = kPadding;
  EXPECT_EQ(Message(tokens_of(true).status()),
            "prompt must not have the model's padding, which has no position, "
            "got \"<pad>\"");
  EXPECT_OK(tokens_of(false).status());
}

}  // namespace
}  // namespace espalier
