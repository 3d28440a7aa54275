// Weights of encoder-decoders as transformers takes them: more positions than
// the encoder reads, and no bias of logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/checkpoint.h"
#include "model/transformer_model.h"
#include "tests/family_models.h"
#include "tests/model/feeder.h"
#include "tests/model/tiny_model.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::FamilyPath;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::FilesOf;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyModel;
using ::espalier::testing::TinyTensor;

constexpr char kBias[] = "final_logits_bias";

json::object ObjectOf(const std::string& path) {
  return ParseJson(*ReadFile(path, 1 << 20))->as_object();
}

// Returns BART's small model with bf16 tensors.
TinyModel Bart() {
  const std::string directory = FamilyPath("bart");
  const auto checkpoint = Checkpoint::Open(directory);
  TinyModel model = {ObjectOf(directory + "/config.json"),
                     ObjectOf(directory + "/generation_config.json"),
                     {}};
  for (const std::string_view name : checkpoint->names()) {
    const StoredTensor& stored = *checkpoint->Find(std::string(name))->tensor;
    EXPECT_EQ(stored.dtype, "BF16");
    TinyTensor tensor = {stored.dtype, stored.shape, {}};
    for (size_t i = 0; i < stored.data.size(); i += 2) {
      const auto bits = std::to_integer<uint32_t>(stored.data[i]) |
                        std::to_integer<uint32_t>(stored.data[i + 1]) << 8;
      tensor.values.push_back(std::bit_cast<float>(bits << 16));
    }
    model.tensors.emplace(name, std::move(tensor));
  }
  return model;
}

LogitsRows LogitsOf(const TinyModel& tiny) {
  const TempDirectory directory(FilesOf(tiny));
  const auto model = TransformerModel::Load(
      directory.path(), {.kv_cache_bytes = 8 << 20}, MakePool(1));
  EXPECT_OK(model);
  if (!model.ok()) return {};
  std::vector<TokenId> source(40);
  for (int i = 0; i < 40; ++i) source[i] = 3 + i;
  return FeedAlone(model->get(), {2, 9, 11, 30}, 1000, source);
}

TEST(EncoderCheckpointTest, AnEncoderMayHaveMorePositionsThanItReads) {
  TinyModel model = Bart();
  const LogitsRows expected = LogitsOf(model);
  constexpr int kContext = 2500, kOffset = 2;
  model.config["max_position_embeddings"] = kContext;
  for (const std::string stack : {"encoder", "decoder"}) {
    TinyTensor& positions =
        model.tensors.at("model." + stack + ".embed_positions.weight");
    positions.shape[0] = kContext + kOffset;
    positions.values.resize(positions.shape[0] * positions.shape[1], 0.5f);
  }
  EXPECT_EQ(LogitsOf(model), expected);
}

TEST(EncoderCheckpointTest, WithoutABiasOfLogitsItIsZero) {
  TinyModel model = Bart();
  TinyTensor& bias = model.tensors.at(kBias);
  bias.values.assign(bias.values.size(), 1.5f);
  const LogitsRows biased = LogitsOf(model);
  bias.values.assign(bias.values.size(), 0.0f);
  const LogitsRows expected = LogitsOf(model);
  EXPECT_NE(expected, biased);
  model.tensors.erase(kBias);
  EXPECT_EQ(LogitsOf(model), expected);
}

}  // namespace
}  // namespace espalier
