#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/model_description.h"
#include "request/request.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

// Sources of tokens have lengths of their own.
TEST(ValidateAlignmentTest, PositionsAreThoseOfTheSource) {
  ModelDescription model = {
      .vocab_size = 50, .max_context = 20, .num_pages = 9};
  model.encoder =
      EncoderDescription{.max_source_tokens = 10,
                         .decoder_prompt = {1},
                         .reported_attention = AttentionShape{1, 1}};
  const auto status_of = [&](int num_positions) {
    Request request;
    request.prompt_tokens = {5, 6, 7};
    request.params.decoder_prompt_tokens = {8, 9};
    request.alignment = std::make_shared<const AlignmentQuery>(
        AlignmentQuery{.heads = {{0, 0}},
                       .num_positions = num_positions,
                       .num_text_tokens = 50});
    return ValidateRequest(model, &request);
  };
  EXPECT_OK(status_of(3));
  EXPECT_THAT(status_of(4),
              StatusIs(kInvalid, HasSubstr("alignment.num_positions")));
}

}  // namespace
}  // namespace espalier
