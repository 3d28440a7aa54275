#include "model/transformer_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/tiny_model.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::ModelFiles;
using ::espalier::testing::TempDirectory;

using Tokens = std::vector<TokenId>;

// Reads the config of a tiny model with replaced fields; null removes one.
TransformerConfig Read(const json::object& changes,
                       const std::string& generation) {
  json::object config = MakeTinyModel({}, 1).config;
  for (const auto& [key, value] : changes) config[key] = value;
  ModelFiles files = {{"config.json", WriteJson(config)}};
  if (!generation.empty()) files["generation_config.json"] = generation;
  const TempDirectory directory(files);
  const auto result = ReadTransformerConfig(directory.path());
  EXPECT_OK(result);
  return *result;
}

TEST(TransformerConfigTest, FieldsThatMayBeMissingHaveTheirDefaults) {
  const TransformerConfig config = Read({{"num_key_value_heads", nullptr},
                                         {"head_dim", nullptr},
                                         {"rms_norm_eps", nullptr},
                                         {"tie_word_embeddings", nullptr},
                                         {"eos_token_id", nullptr}},
                                        "");
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 6);  // hidden_size 24, 4 heads
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, Tokens());
}

TEST(TransformerConfigTest, TheGenerationConfigsEosIdsReplaceTheModels) {
  const json::object both = {{"eos_token_id", {3, 4}}};
  EXPECT_EQ(Read(both, "").eos_token_ids, (Tokens{3, 4}));
  EXPECT_EQ(Read(both, "{}").eos_token_ids, (Tokens{3, 4}));
  EXPECT_EQ(Read(both, R"({"eos_token_id": null})").eos_token_ids,
            (Tokens{3, 4}));
  EXPECT_EQ(Read(both, R"({"eos_token_id": 9})").eos_token_ids, (Tokens{9}));
  EXPECT_EQ(Read(both, R"({"eos_token_id": [7, 8]})").eos_token_ids,
            (Tokens{7, 8}));
  EXPECT_EQ(Read(both, R"({"eos_token_id": []})").eos_token_ids, Tokens());
  // The rest is of requests (request/generation_defaults.h).
  EXPECT_EQ(Read(both, R"({"max_new_tokens": 0})").eos_token_ids,
            (Tokens{3, 4}));
}

TEST(TransformerConfigTest, EmbeddedModelsReadAsTheyWereTrained) {
  ASSERT_OK_AND_ASSIGN(const TransformerConfig config,
                       ReadTransformerConfig(SourcePath("models/en-fr")));
  EXPECT_EQ(config.vocab_size, 6000);
  EXPECT_EQ(config.num_layers(), 6);
  EXPECT_EQ(config.q_size(), 256);
  EXPECT_EQ(config.kv_size(), 128);
  EXPECT_EQ(config.max_context, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope.type, RopeType::kDefault);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.eos_token_ids, Tokens{2});
}

}  // namespace
}  // namespace espalier
