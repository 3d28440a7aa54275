#include "tests/model/twin_checks.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/few_cases.h"
#include "tests/model/feeder.h"
#include "tests/model/transformer_reference.h"

namespace espalier::testing {
namespace {

void ExpectNear(const LogitsRows& logits_rows,
                const std::vector<std::vector<double>>& expected) {
  ASSERT_EQ(logits_rows.size(), expected.size());
  for (size_t t = 0; t < expected.size(); ++t) {
    ASSERT_EQ(logits_rows[t].size(), expected[t].size());
    for (size_t i = 0; i < expected[t].size(); ++i) {
      ASSERT_NEAR(logits_rows[t][i], expected[t][i], kFloat32Tolerance)
          << "token " << t << " logit " << i;
    }
  }
}

}  // namespace

std::vector<TokenId> RandomTokens(int count, int vocab_size, int seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(random() % vocab_size);
  return tokens;
}

std::vector<TinyShape> TinyShapes() {
  return {{},
          {.tied = true},
          {.dtype = "BF16"},
          {.num_heads = 5, .num_kv_heads = 1, .dtype = "F16"},
          {.num_heads = 3, .num_kv_heads = 3, .head_dim = 8, .tied = true},
          {.vocab_size = 70,
           .hidden_size = 96,
           .intermediate_size = 130,
           .num_layers = 3,
           .num_heads = 4,
           .num_kv_heads = 1,
           .head_dim = 64,
           .tied = true,
           .dtype = "BF16"}};
}

TinyShape SmallestShape(int head_dim) {
  return {.vocab_size = 6,
          .hidden_size = 1,
          .intermediate_size = 1,
          .num_layers = 1,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = head_dim};
}

void ExpectMatchesTwin(const std::vector<TinyShape>& shapes,
                       const LoadTinyModel& load) {
  for (size_t s = 0; s < shapes.size(); ++s) {
    const TinyModel tiny = MakeTinyModel(shapes[s], 3);
    const int num_tokens = Cases(41, 12);
    const auto tokens = RandomTokens(num_tokens, shapes[s].vocab_size, 4);
    const auto expected = ReferenceLogits(tiny, tokens);
    for (const int page_size :
         Cases(std::vector<int>{1, 3, 16, 64}, std::vector<int>{3})) {
      const std::unique_ptr<Model> model = load(tiny, page_size);
      for (const int chunk : {1, 7, num_tokens}) {
        ASSERT_NO_FATAL_FAILURE(
            ExpectNear(FeedAlone(model.get(), tokens, chunk), expected))
            << "shape " << s << ", page size " << page_size << ", chunk "
            << chunk;
      }
    }
  }
}

}  // namespace espalier::testing
