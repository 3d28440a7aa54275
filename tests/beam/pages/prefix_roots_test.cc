#include "beam/pages/prefix_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <vector>

#include "beam/prepared_request.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

ModelDescription WithEncoder(int page_size) {
  ModelDescription model;
  model.vocab_size = 64;
  model.page_size = page_size;
  model.encoder = {.max_source_tokens = 64, .decoder_prompt = {3, 9}};
  return model;
}

Request Of(std::vector<TokenId> source, std::string salt = "") {
  Request request;
  request.prompt_tokens = std::move(source);
  request.params.cache_salt = std::move(salt);
  request.params.max_new_tokens = 5;
  return request;
}

TEST(PrefixRootsTest, EachSourceAndSaltHasRootsOfItsOwn) {
  const ModelDescription model = WithEncoder(1);
  const std::string bytes("\x05\0\0\0", 4);
  const std::string hash = EncoderInput({6}).content_hash();
  std::set<std::string> roots;
  for (const Request& request :
       {Of({5, 6}), Of({6}), Of({5, 6}, "a"), Of({6}, bytes), Of({6}, "1:a"),
        Of({6}, "a"), Of({5, 6, 0}), Of({5}), Of({5}, hash), Of({5}, "s")}) {
    const PreparedRequest prepared(request, nullptr, &model);
    roots.insert(prepared.roots.tokens);
    roots.insert(prepared.roots.source);
    const PreparedRequest again(request, nullptr, &model);
    EXPECT_EQ(again.roots.tokens, prepared.roots.tokens);
    EXPECT_EQ(again.roots.source, prepared.roots.source);
  }
  EXPECT_EQ(roots.size(), 20u);
}

TEST(PrefixRootsTest, WithoutAnEncoderAPromptStaysWhatItIs) {
  const ModelDescription model;
  const PreparedRequest prepared(Of({5, 6}, "salt"), nullptr, &model);
  EXPECT_EQ(prepared.source, nullptr);
  EXPECT_EQ(prepared.source_length(), 0);
  EXPECT_THAT(prepared.request.prompt_tokens, ElementsAre(5, 6));
  EXPECT_THAT(prepared.prompt(), ElementsAre(5, 6));
  EXPECT_EQ(prepared.roots.tokens, "salt");
}

TEST(PrefixRootsTest, ProcessorsSeeTheDecodersTokensAlone) {
  const ModelDescription model = WithEncoder(4);
  Request request = Of({5, 6, 7}, "salt");
  request.params.repetition_penalty = 2;
  const PreparedRequest prepared(request, nullptr, &model);
  EXPECT_THAT(prepared.request.prompt_tokens, ElementsAre(3, 9));
  EXPECT_THAT(prepared.source->tokens(), ElementsAre(5, 6, 7));
  EXPECT_EQ(prepared.num_prompt_tokens(), 3);
  EXPECT_EQ(prepared.request.params.cache_salt, "salt");
  EXPECT_THAT(prepared.selection_params->edits->prompt(), ElementsAre(3, 9));
}

// Pages of a request with the source {5, 6, 7} and the decoder prompt {3, 9}.
TEST(PrefixRootsTest, CachedPagesAreThoseOfTheSourceAndTheTokens) {
  const ModelDescription model = WithEncoder(2);
  const PreparedRequest prepared(Of({5, 6, 7}), nullptr, &model);
  PagePool pool(8, 2);
  PrefixTree tree(&pool);
  const auto num_cached = [&] {
    return FindCachedPages(prepared.roots, 2, prepared.request.prompt_tokens,
                           &tree)
        .size();
  };
  EXPECT_EQ(num_cached(), 0u);
  const std::span<const TokenId> edge = tree.ChainTokens(1);
  const auto first = tree.Insert(prepared.roots.source, {}, edge,
                                 *pool.Allocate(), PageState::kReady);
  EXPECT_EQ(num_cached(), 1u);
  const std::vector<TokenId> prompt = {3, 9};
  tree.Insert(prepared.roots.tokens, {}, prompt, *pool.Allocate(),
              PageState::kReady);
  EXPECT_EQ(num_cached(), 1u);  // tokens are fed when the source is read
  const auto second =
      tree.Insert(prepared.roots.source, first->cursor, tree.ChainTokens(1),
                  *pool.Allocate(), PageState::kFilling);
  EXPECT_EQ(num_cached(), 1u);
  tree.MarkReady(second->cursor);
  EXPECT_EQ(num_cached(), 3u);
}

}  // namespace
}  // namespace espalier
