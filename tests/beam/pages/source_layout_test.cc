#include "beam/pages/source_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

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

TEST(SourceLayoutTest, TheDecoderBeginsOnAPageOfItsOwn) {
  const ModelDescription model = WithEncoder(4);
  Request request = Of({5, 6, 7, 8, 9});
  const SourceLayout layout = LayOutSource(model, &request);
  EXPECT_EQ(layout.num_tokens, 5);
  EXPECT_EQ(layout.end, 8);
  EXPECT_THAT(request.prompt_tokens, ElementsAre(5, 6, 7, 8, 9, 0, 0, 0, 3, 9));
  request = Of({5, 6, 7, 8});
  EXPECT_EQ(LayOutSource(model, &request).end, 4);
  EXPECT_THAT(request.prompt_tokens, ElementsAre(5, 6, 7, 8, 3, 9));
}

TEST(SourceLayoutTest, WithoutAnEncoderAPromptStaysWhatItIs) {
  Request request = Of({5, 6}, "salt");
  EXPECT_EQ(LayOutSource(ModelDescription(), &request).num_tokens, 0);
  EXPECT_THAT(request.prompt_tokens, ElementsAre(5, 6));
  EXPECT_EQ(request.params.cache_salt, "salt");
}

TEST(SourceLayoutTest, EachSourceAndSaltHasARootOfItsOwn) {
  const ModelDescription model = WithEncoder(1);
  const std::string bytes("\x05\0\0\0", 4);
  std::set<std::string> roots;
  for (Request request :
       {Of({5, 6}), Of({6}), Of({5, 6}, "a"), Of({6}, bytes), Of({6}, "1:a"),
        Of({6}, "a"), Of({5, 6, 0}), Of({5})}) {
    LayOutSource(model, &request);
    roots.insert(request.params.cache_salt);
  }
  EXPECT_EQ(roots.size(), 8u);
}

TEST(SourceLayoutTest, ProcessorsSeeTheDecodersTokensAlone) {
  const ModelDescription model = WithEncoder(4);
  Request request = Of({5, 6, 7});
  request.params.repetition_penalty = 2;
  const PreparedRequest prepared(request, nullptr, &model);
  EXPECT_THAT(prepared.context(), ElementsAre(3, 9));
  EXPECT_EQ(prepared.num_prompt_tokens(), 3);
  EXPECT_THAT(prepared.selection_params->edits->prompt(), ElementsAre(3, 9));
}

}  // namespace
}  // namespace espalier
