// Whisper's forward pass against the logits of transformers, which computed
// them in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "model/safetensors.h"
#include "model/transformer_config.h"
#include "model/transformer_features.h"
#include "model/transformer_model.h"
#include "tests/family_models.h"
#include "tests/model/feeder.h"
#include "tests/model/stored_values.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "tests/whisper_models.h"

namespace espalier {
namespace {

using ::espalier::testing::FamilyPath;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::Feeder;
using ::espalier::testing::InputOf;
using ::espalier::testing::kNumWhisperFeatures;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::espalier::testing::StoredFeatures;
using ::espalier::testing::StoredValues;
using ::espalier::testing::WhisperModels;
using ::espalier::testing::WhisperPath;
using ::testing::Contains;
using ::testing::HasSubstr;

std::unique_ptr<TransformerModel> LoadWhisper(
    const std::string& name, int page_size, int num_threads = 1,
    WeightFormat weights = WeightFormat::kAsStored) {
  auto model = TransformerModel::Load(
      WhisperPath(name),
      {.page_size = page_size, .kv_cache_bytes = 8 << 20, .weights = weights},
      MakePool(num_threads));
  EXPECT_OK(model);
  return *std::move(model);
}

SafetensorsFile OpenReferences(const std::string& name) {
  auto file = SafetensorsFile::Open(WhisperPath(name) + "/logits.safetensors");
  EXPECT_OK(file);
  return *std::move(file);
}

double WhisperDistance(const LogitsRows& logits_rows,
                       const std::vector<float>& all) {
  double distance = 0;
  size_t at = 0;
  for (const std::vector<float>& row : logits_rows) {
    for (const float logit : row) {
      if (std::isnan(logit)) return NAN;
      distance = std::max(distance, std::abs(double{logit} - all.at(at++)));
    }
  }
  EXPECT_EQ(at, all.size());
  return distance;
}

class WhisperTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, WhisperTest,
                         ::testing::ValuesIn(WhisperModels()),
                         [](const auto& model) { return model.param; });

TEST_P(WhisperTest, LogitsAreThoseOfTransformers) {
  const SafetensorsFile file = OpenReferences(GetParam());
  for (const int page_size : {1, 3, 16}) {
    const auto model = LoadWhisper(GetParam(), page_size);
    for (int i = 0; i < kNumWhisperFeatures; ++i) {
      const auto tokens = StoredValues<TokenId>(file, Concat("tokens.", i));
      const auto expected = StoredValues<float>(file, Concat("logits.", i));
      const auto input = InputOf(StoredFeatures(file, i));
      const LogitsRows whole = FeedAlone(model.get(), tokens, 1000, input);
      ASSERT_LE(WhisperDistance(whole, expected), 1e-4) << "sequence " << i;
      for (const int chunk : {1, 5}) {
        EXPECT_EQ(FeedAlone(model.get(), tokens, chunk, input), whole) << chunk;
      }
    }
  }
}

// Sources that are read together, by several threads, and one that is stored.
TEST_P(WhisperTest, ASequenceHasTheSameBitsAloneAndTogether) {
  const SafetensorsFile file = OpenReferences(GetParam());
  const auto alone = LoadWhisper(GetParam(), 4);
  const auto together = LoadWhisper(GetParam(), 4, /*num_threads=*/2);
  Feeder feeder(together.get());
  std::vector<Feeder::Row> rows;
  std::vector<LogitsRows> expected;
  for (int i = 0; i < 12; ++i) {
    const auto input = InputOf(StoredFeatures(file, i % kNumWhisperFeatures));
    const std::vector<TokenId> tokens = {3, 10 + i, 20, 30 + i};
    expected.push_back(FeedAlone(alone.get(), tokens, 1000, input));
    rows.push_back({feeder.AddInput(input), tokens});
  }
  EXPECT_EQ(feeder.Step(rows), expected);
  const auto input = InputOf(StoredFeatures(file, 0));
  const LogitsRows further =
      FeedAlone(alone.get(), {3, 10, 20, 30, 7}, 1000, input);
  EXPECT_EQ(feeder.Step({{rows[0].sequence, {7}}})[0][0], further[4]);
}

TEST_P(WhisperTest, RunsWithReducedWeights) {
  const SafetensorsFile file = OpenReferences(GetParam());
  const auto tokens = StoredValues<TokenId>(file, "tokens.2");
  const auto expected = StoredValues<float>(file, "logits.2");
  const auto model = LoadWhisper(GetParam(), 16, 1, WeightFormat::kInt8);
  const double distance = WhisperDistance(
      FeedAlone(model.get(), tokens, 1000, InputOf(StoredFeatures(file, 2))),
      expected);
  EXPECT_GT(distance, 1e-4);
  EXPECT_LT(distance, 0.5);
}

TEST_P(WhisperTest, DescribesItself) {
  ASSERT_OK_AND_ASSIGN(const TransformerConfig config,
                       ReadTransformerConfig(WhisperPath(GetParam())));
  EXPECT_THAT(DescribeFeatures(config),
              Contains(Concat("convolutions of ", config.encoder->num_mel_bins,
                              " features a frame")));
  EXPECT_THAT(DescribeFeatures(config),
              Contains("biases of q, v, the attention's output and "
                       "feed-forward"));
  const auto model = LoadWhisper(GetParam(), 16);
  const EncoderDescription& encoder = *model->description().encoder;
  EXPECT_EQ(encoder.features->num_rows, 2 * encoder.max_source_tokens);
  EXPECT_EQ(encoder.features->num_cols, config.encoder->num_mel_bins);
  EXPECT_EQ(encoder.decoder_prompt, std::vector<TokenId>{3});
  EXPECT_EQ(model->description().max_context, 40);
}

TEST(WhisperPlanTest, SourcesAreWhatTheEncoderReads) {
#ifdef NDEBUG
  GTEST_SKIP() << "only debug builds check the sources of plans";
#else
  const auto speech = LoadWhisper("whisper", 16);
  const auto text = *TransformerModel::Load(
      FamilyPath("bart"), {.kv_cache_bytes = 8 << 20}, MakePool(1));
  const auto refuses = [](TransformerModel* model, const EncoderInput& input) {
    const auto source = std::make_shared<const EncoderInput>(input);
    EXPECT_DEATH(FeedAlone(model, {3}, 1, source), "a plan of 1 rows");
  };
  const EncoderDescription& encoder = *speech->description().encoder;
  const auto features = [](FeatureShape shape, int length) {
    const size_t size = size_t(shape.num_rows) * shape.num_cols;
    return EncoderInput(
        std::make_shared<const FeatureMatrix>(
            FeatureMatrix{.shape = shape, .values = std::vector<float>(size)}),
        length);
  };
  const FeatureShape shape = *encoder.features;
  const int length = encoder.max_source_tokens;
  FeedAlone(speech.get(), {3}, 1,
            std::make_shared<const EncoderInput>(features(shape, length)));
  refuses(speech.get(), EncoderInput({5, 6, 7}));
  refuses(speech.get(), features(shape, length - 1));
  refuses(speech.get(), features({shape.num_rows - 2, shape.num_cols}, length));
  refuses(speech.get(), features({shape.num_cols, shape.num_rows}, length));
  refuses(text.get(), features(shape, length));
  const int most = text->description().encoder->max_source_tokens;
  refuses(text.get(), EncoderInput(std::vector<TokenId>(most + 1, 5)));
#endif
}

// The configuration with one field changed, or without it if `value` is empty.
absl::StatusOr<TransformerConfig> ReadWhisper(const std::string& field,
                                              const std::string& value) {
  const ScratchDirectory scratch;
  json::value config =
      *ParseJson(*ReadFile(WhisperPath("whisper") + "/config.json", 1 << 20));
  if (value.empty()) {
    config.as_object().erase(field);
  } else {
    config.as_object()[field] = *ParseJson(value);
  }
  scratch.Write("config.json", WriteJson(config));
  return ReadTransformerConfig(scratch.path());
}

TEST(WhisperConfigTest, RefusesValuesByTheirFields) {
  for (const char* const field :
       {"num_mel_bins", "max_source_positions", "max_target_positions",
        "encoder_layers", "d_model"}) {
    EXPECT_THAT(ReadWhisper(field, "0"),
                StatusIs(kInvalid, HasSubstr(Concat(field, " must be"))));
  }
  EXPECT_THAT(ReadWhisper("encoder_attention_heads", "8"),
              StatusIs(kInvalid, HasSubstr("encoder_attention_heads must be "
                                           "decoder_attention_heads, 4")));
}

TEST(WhisperConfigTest, HasTransformersDefaults) {
  EXPECT_EQ(ReadWhisper("num_mel_bins", "")->encoder->num_mel_bins, 80);
  EXPECT_EQ(ReadWhisper("max_source_positions", "")->encoder->max_tokens, 1500);
  EXPECT_EQ(ReadWhisper("max_target_positions", "")->max_context, 448);
  EXPECT_EQ(ReadWhisper("d_model", "")->hidden_size, 384);
  EXPECT_EQ(ReadWhisper("decoder_layers", "")->num_layers(), 4);
  EXPECT_EQ(
      ReadWhisper("encoder_ffn_dim", "")->encoder->layers[0].intermediate_size,
      1536);
  // transformers reads the field and ignores it.
  EXPECT_FALSE(ReadWhisper("scale_embedding", "true")->scales_embeddings);
}

}  // namespace
}  // namespace espalier
