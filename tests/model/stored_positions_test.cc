// Sinusoidal positions that a file stores beside its weights must be those that
// are computed: transformers takes the stored ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/checkpoint.h"
#include "model/positions.h"
#include "model/transformer_model.h"
#include "model/transformer_tensors.h"
#include "tests/family_models.h"
#include "tests/model/feeder.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::FamilyPath;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kNumPositions = 64, kPositionSize = 32;

// The file with one tensor more.
std::string WithOneTensorMore(const std::string& file, const std::string& name,
                              const std::string& dtype,
                              const std::vector<int64_t>& shape,
                              const std::string& data) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof(header_size));
  json::value header = ParseJson(file.substr(8, header_size)).value();
  const std::string old_data = file.substr(8 + header_size);
  header.as_object()[name] = {
      {"dtype", dtype},
      {"shape", json::array(shape.begin(), shape.end())},
      {"data_offsets", {old_data.size(), old_data.size() + data.size()}}};
  std::string text = WriteJson(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  header_size = text.size();
  std::string result(8, '\0');
  std::memcpy(result.data(), &header_size, sizeof(header_size));
  return result + text + old_data + data;
}

std::string AsF32(const std::vector<float>& values) {
  std::string bytes(4 * values.size(), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Rounded to nearest, as they are stored beside weights in bf16.
std::string AsBf16(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    bytes += {static_cast<char>(bits & 0xFF), static_cast<char>(bits >> 8)};
  }
  return bytes;
}

// Writes the small Marian with such positions of `stack`.
void WriteWithPositions(const std::string& stack, const std::string& dtype,
                        const std::vector<int64_t>& shape,
                        const std::string& data, ScratchDirectory& model) {
  std::filesystem::copy_file(FamilyPath("marian") + "/config.json",
                             model.path("config.json"));
  model.Write(
      "model.safetensors",
      WithOneTensorMore(
          ReadFile(FamilyPath("marian") + "/model.safetensors", 1 << 20)
              .value(),
          "model." + stack + ".embed_positions.weight", dtype, shape, data));
}

absl::Status FindWithPositions(const std::string& stack,
                               const std::string& dtype,
                               const std::vector<int64_t>& shape,
                               const std::string& data) {
  ScratchDirectory model;
  WriteWithPositions(stack, dtype, shape, data, model);
  const auto config = ReadTransformerConfig(model.path());
  if (!config.ok()) return config.status();
  const auto checkpoint = Checkpoint::Open(model.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return FindTransformerTensors(*checkpoint, *config).status();
}

TEST(StoredPositionsTest, ThoseThatAreComputedMayBeStored) {
  const std::vector<float> table =
      SinusoidalPositions(kNumPositions, kPositionSize);
  for (const char* const stack : {"encoder", "decoder"}) {
    const std::vector<int64_t> shape = {kNumPositions, kPositionSize};
    EXPECT_OK(FindWithPositions(stack, "F32", shape, AsF32(table)));
    EXPECT_OK(FindWithPositions(stack, "BF16", shape, AsBf16(table)));
  }
}

// The logits after three tokens with a source of four.
LogitsRows LogitsOf(const std::string& directory) {
  const auto model = TransformerModel::Load(
      directory, {.kv_cache_bytes = 1 << 20}, MakePool(1));
  EXPECT_OK(model);
  return FeedAlone(model->get(), {3, 10, 11}, 1000, {20, 21, 22, 2});
}

TEST(StoredPositionsTest, RoundedOnesAreAddedAsTheyAreStored) {
  const std::vector<float> table =
      SinusoidalPositions(kNumPositions, kPositionSize);
  std::vector<float> shifted;
  for (const float value : table) shifted.push_back(value + 0.0005f);
  const LogitsRows computed = LogitsOf(FamilyPath("marian"));
  const std::vector<int64_t> shape = {kNumPositions, kPositionSize};
  for (const char* const stack : {"encoder", "decoder"}) {
    ScratchDirectory exact, in_bf16, in_f32;
    WriteWithPositions(stack, "F32", shape, AsF32(table), exact);
    WriteWithPositions(stack, "BF16", shape, AsBf16(table), in_bf16);
    WriteWithPositions(stack, "F32", shape, AsF32(shifted), in_f32);
    EXPECT_EQ(LogitsOf(exact.path()), computed);
    EXPECT_NE(LogitsOf(in_bf16.path()), computed);
    EXPECT_NE(LogitsOf(in_f32.path()), computed);
  }
}

// transformers, too, ignores the buffers of old M2M100 checkpoints.
TEST(StoredPositionsTest, ThoseOfM2m100AreComputedWhateverIsStored) {
  const std::string from = FamilyPath("m2m_100");
  ScratchDirectory model;
  std::filesystem::copy_file(from + "/config.json", model.path("config.json"));
  model.Write(
      "model.safetensors",
      WithOneTensorMore(ReadFile(from + "/model.safetensors", 1 << 20).value(),
                        "model.encoder.embed_positions.weights", "F32",
                        {66, kPositionSize},
                        AsF32(std::vector<float>(66 * kPositionSize, 3.0f))));
  EXPECT_EQ(LogitsOf(model.path()), LogitsOf(from));
}

TEST(StoredPositionsTest, OthersAreRefusedByTensorAndPlace) {
  const std::vector<float> table =
      SinusoidalPositions(kNumPositions, kPositionSize);
  for (const char* const stack : {"encoder", "decoder"}) {
    for (const float wrong : {0.002f, -0.002f, 1.0f, std::nanf("")}) {
      std::vector<float> other = table;
      other[3 * kPositionSize + 5] += wrong;
      EXPECT_THAT(
          FindWithPositions(stack, "F32", {kNumPositions, kPositionSize},
                            AsF32(other)),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   AllOf(HasSubstr(std::string("model.safetensors: tensor "
                                               "model.") +
                                   stack +
                                   ".embed_positions.weight: must "
                                   "hold sinusoidal positions, "),
                         HasSubstr(" at [3, 5], got "))));
    }
    std::vector<float> other = table;
    other.back() = -other.back();
    EXPECT_THAT(FindWithPositions(stack, "BF16", {kNumPositions, kPositionSize},
                                  AsBf16(other)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(" at [63, 31], got ")));
    EXPECT_THAT(
        FindWithPositions(stack, "F32", {kPositionSize, kNumPositions},
                          AsF32(table)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("embed_positions.weight must have shape [64, 32]")));
  }
}

}  // namespace
}  // namespace espalier
