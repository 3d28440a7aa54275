// The forward pass of each family against the logits of transformers, which
// computed them in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model_family.h"
#include "model/safetensors.h"
#include "model/transformer_features.h"
#include "model/transformer_model.h"
#include "tests/family_models.h"
#include "tests/model/batch_checks.h"
#include "tests/model/feeder.h"
#include "tests/model/stored_values.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::ExpectSameBitsInAnyBatch;
using ::espalier::testing::FamilyModels;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::Feeder;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::RandomTokens;
using ::espalier::testing::SourceFor;
using ::espalier::testing::StoredValues;

constexpr double kLogitsTolerance = 1e-4;

std::unique_ptr<TransformerModel> LoadFamily(const std::string& name,
                                             int page_size,
                                             int num_threads = 1) {
  auto model = TransformerModel::Load(
      FamilyPath(name), {.page_size = page_size, .kv_cache_bytes = 8 << 20},
      MakePool(num_threads));
  EXPECT_OK(model);
  return *std::move(model);
}

int NumSequencesOf(const SafetensorsFile& file) {
  int count = 0;
  while (file.Find(Concat("tokens.", count)).ok()) ++count;
  return count;
}

// Returns the encoder's tokens of sequence `i`; empty without an encoder.
std::vector<TokenId> SourceOf(const SafetensorsFile& file, int i) {
  const std::string name = Concat("source.", i);
  if (!file.Find(name).ok()) return {};
  return StoredValues<TokenId>(file, name);
}

// The largest difference from the reference's logits.
double Distance(const LogitsRows& logits_rows, const std::vector<float>& all) {
  double distance = 0;
  size_t at = 0;
  for (const std::vector<float>& row : logits_rows) {
    for (const float logit : row) {
      // -inf, of a token that is never generated.
      if (logit == all.at(at)) {
        ++at;
        continue;
      }
      distance = std::max(distance, std::abs(double{logit} - all.at(at++)));
      if (std::isnan(logit)) return NAN;
    }
  }
  EXPECT_EQ(at, all.size());
  return distance;
}

class FamiliesTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, FamiliesTest,
                         ::testing::ValuesIn(FamilyModels()),
                         [](const auto& model) { return model.param; });

TEST_P(FamiliesTest, LogitsAreThoseOfTransformers) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open(FamilyPath(GetParam()) + "/logits.safetensors"));
  const int num_sequences = NumSequencesOf(file);
  ASSERT_GE(num_sequences, 3);
  double worst = 0;
  for (const int page_size : {1, 3, 16}) {
    const auto model = LoadFamily(GetParam(), page_size);
    for (int i = 0; i < num_sequences; ++i) {
      const auto tokens = StoredValues<TokenId>(file, Concat("tokens.", i));
      const auto expected = StoredValues<float>(file, Concat("logits.", i));
      const auto source = SourceOf(file, i);
      const LogitsRows whole = FeedAlone(model.get(), tokens, 1000, source);
      const double distance = Distance(whole, expected);
      ASSERT_LE(distance, kLogitsTolerance) << "sequence " << i;
      worst = std::max(worst, distance);
      for (const int chunk : {1, 5}) {
        EXPECT_EQ(FeedAlone(model.get(), tokens, chunk, source), whole)
            << chunk;
      }
    }
  }
  RecordProperty("distance", std::to_string(worst));
}

TEST_P(FamiliesTest, ASequenceHasTheSameBitsAloneAndInAnyBatch) {
  const auto model = LoadFamily(GetParam(), 3, /*num_threads=*/2);
  ExpectSameBitsInAnyBatch(model.get(), /*longest=*/48, /*seed=*/1);
}

// Enough rows that each thread takes some through all layers.
TEST_P(FamiliesTest, AStepDividedByRowsChangesNoBits) {
  const auto model = LoadFamily(GetParam(), 4, /*num_threads=*/2);
  Feeder feeder(model.get());
  std::vector<Feeder::Row> rows;
  std::vector<LogitsRows> alone;
  for (int i = 0; i < 30; ++i) {
    const auto tokens = RandomTokens(1 + i % 13, 64, i);
    const auto source = SourceFor(*model, 1 + i % 17, i);
    alone.push_back(FeedAlone(model.get(), tokens, 1000, source));
    rows.push_back({feeder.Add(source), tokens});
  }
  EXPECT_EQ(feeder.Step(rows), alone);
}

TEST_P(FamiliesTest, DescribesItself) {
  ASSERT_OK_AND_ASSIGN(const TransformerConfig config,
                       ReadTransformerConfig(FamilyPath(GetParam())));
  const std::vector<std::string> features = DescribeFeatures(config);
  EXPECT_GE(features.size(), 3u);
  EXPECT_EQ(std::set<std::string>(features.begin(), features.end()).size(),
            features.size());
}

TEST(FamiliesCoverageTest, EveryFamilyHasAModel) {
  std::set<std::string_view> present;
  for (const std::string& name : FamilyModels()) {
    const auto config = ReadTransformerConfig(FamilyPath(name));
    ASSERT_OK(config);
    present.insert(config->family);
  }
  for (const ModelFamily* family : ModelFamilies()) {
    if (family->name == "Whisper") continue;  // in whisper_test.cc
    EXPECT_EQ(present.count(family->name), 1) << family->name;
  }
}

}  // namespace
}  // namespace espalier
