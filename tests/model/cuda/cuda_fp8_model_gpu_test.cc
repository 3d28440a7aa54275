// Models of e4m3 weights on the device, quantised when loaded or stored as
// codes, compared with the CPU's and with models of the dequantized bfloat16
// weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/cuda/cuda_transformer.h"
#include "model/transformer_model.h"
#include "tests/few_cases.h"
#include "tests/model/cuda/cuda_plan_model.h"
#include "tests/model/feeder.h"
#include "tests/model/fp8_models.h"
#include "tests/model/tiny_model.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::CudaPlanBatch;
using ::espalier::testing::CudaPlanModel;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::FilesOf;
using ::espalier::testing::Fp8Model;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::RandomTokens;
using ::espalier::testing::ScaleShape;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyModel;
using ::espalier::testing::TinyShape;
using ::espalier::testing::WidenedFp8Model;
using ::testing::HasSubstr;

constexpr int kNumTokens = 70;

CudaTransformerOptions OptionsOf(DType dtype, WeightFormat weights) {
  return {.page_size = 16,
          .kv_cache_bytes = 8 << 20,
          .dtype = dtype,
          .weights = weights,
          .max_tokens = 256,
          .max_logits = 256,
          .max_attention_items = 2048,
          .max_attention_partials = 4096};
}

LogitsRows LogitsOnDevice(const TinyModel& tiny, int chunk,
                          WeightFormat weights = WeightFormat::kAsStored,
                          DType dtype = DType::kBFloat16) {
  const TempDirectory directory(FilesOf(tiny));
  const CudaTransformerOptions options = OptionsOf(dtype, weights);
  const auto device = CudaDevice::Open(0);
  EXPECT_OK(device);
  auto model = CudaTransformer::Load(directory.path(), options, *device);
  EXPECT_OK(model);
  if (!model.ok()) return {};
  CudaPlanModel plans(*std::move(model), *device,
                      {.share_runs = true,
                       .max_items = options.max_attention_items,
                       .max_partials = options.max_attention_partials});
  const int vocab_size = plans.description().vocab_size;
  return FeedAlone(&plans, RandomTokens(kNumTokens, vocab_size, 6), chunk);
}

LogitsRows LogitsOnHost(const TinyModel& tiny, WeightFormat weights) {
  const TempDirectory directory(FilesOf(tiny));
  const auto model = TransformerModel::Load(
      directory.path(), {.kv_cache_bytes = 8 << 20, .weights = weights},
      MakePool(2));
  EXPECT_OK(model);
  const int vocab_size = (*model)->description().vocab_size;
  return FeedAlone(model->get(), RandomTokens(kNumTokens, vocab_size, 6), 70);
}

// |a - b| / |b| over all numbers.
double Distance(const LogitsRows& a, const LogitsRows& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      difference += std::pow(double{a[t][i]} - b[t][i], 2);
      norm += std::pow(double{b[t][i]}, 2);
    }
  }
  return std::sqrt(difference / norm);
}

// Shapes with sizes of the fp8 kernels; with matrices that are no multiples of
// 64 wide, which are held as bfloat16; with padded heads; and without any size
// that fits.
std::vector<TinyShape> Shapes() {
  return {{.hidden_size = 128,
           .intermediate_size = 256,
           .num_heads = 2,
           .num_kv_heads = 1,
           .head_dim = 64,
           .dtype = "BF16"},
          {.hidden_size = 192,
           .intermediate_size = 200,
           .num_heads = 6,
           .num_kv_heads = 2,
           .head_dim = 32,
           .dtype = "BF16"},
          {.hidden_size = 128,
           .intermediate_size = 320,
           .num_heads = 4,
           .num_kv_heads = 2,
           .head_dim = 20,
           .tied = true,
           .dtype = "BF16"},
          {.dtype = "BF16"}};
}

// CudaTransformerTest.SixteenBitsComeAsNearAsTheirRoundingAllows covers the
// rounding of activations.
TEST(CudaFp8ModelTest, LogitsAreThoseOfTheCpuButForTheirRounding) {
  for (const TinyShape& shape : Shapes()) {
    const TinyModel tiny = MakeTinyModel(shape, 5);
    const LogitsRows expected = LogitsOnHost(tiny, WeightFormat::kFp8);
    EXPECT_GT(Distance(LogitsOnHost(tiny, WeightFormat::kAsStored), expected),
              2e-2);
    for (const int chunk : Cases(std::vector<int>{1, 5, 20, kNumTokens},
                                 std::vector<int>{5, kNumTokens})) {
      EXPECT_LT(
          Distance(LogitsOnDevice(tiny, chunk, WeightFormat::kFp8), expected),
          2e-2)
          << "hidden " << shape.hidden_size << ", chunks of " << chunk;
    }
  }
}

// And they are the same bits whether codes are stored or made.
TEST(CudaFp8ModelTest, StoredCodesAreWhatQuantisingMakes) {
  for (const TinyShape& shape : Shapes()) {
    const TinyModel tiny = MakeTinyModel(shape, 5);
    const TinyModel stored = Fp8Model(tiny);
    for (const int chunk : {5, kNumTokens}) {
      const LogitsRows made = LogitsOnDevice(tiny, chunk, WeightFormat::kFp8);
      EXPECT_EQ(LogitsOnDevice(stored, chunk), made);
      EXPECT_EQ(LogitsOnDevice(stored, chunk, WeightFormat::kFp8), made);
    }
  }
}

TEST(CudaFp8ModelTest, ScalesOfAllFormsAreRead) {
  const TinyModel tiny = MakeTinyModel(Shapes()[0], 5);
  for (const ScaleShape scales :
       {ScaleShape::kNone, ScaleShape::kOne, ScaleShape::kRows}) {
    const TinyModel stored = Fp8Model(tiny, scales, "F32");
    EXPECT_LT(Distance(LogitsOnDevice(stored, 7),
                       LogitsOnDevice(WidenedFp8Model(stored), 7)),
              2e-2);
  }
}

// Codes are dequantized when they are loaded if the model runs in another
// dtype, or if a part of a fused matrix is not stored as codes.
TEST(CudaFp8ModelTest, WhatCannotStayACodeIsWidened) {
  const TinyModel tiny = MakeTinyModel(Shapes()[0], 5);
  const TinyModel stored = Fp8Model(tiny);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    EXPECT_EQ(LogitsOnDevice(stored, 7, WeightFormat::kAsStored, dtype),
              LogitsOnDevice(WidenedFp8Model(stored), 7,
                             WeightFormat::kAsStored, dtype));
  }
  TinyModel mixed = stored;
  for (const std::string name : {"model.layers.0.self_attn.k_proj.weight",
                                 "model.layers.0.mlp.down_proj.weight"}) {
    mixed.tensors[name] = tiny.tensors.at(name);
    mixed.tensors.erase(name + "_scale");
  }
  EXPECT_LT(Distance(LogitsOnDevice(mixed, 7),
                     LogitsOnDevice(WidenedFp8Model(mixed), 7)),
            2e-2);
}

TEST(CudaFp8ModelTest, WhatIsWrongIsNamed) {
  const auto device = CudaDevice::Open(0);
  const auto error = [&](const TinyModel& tiny, DType dtype,
                         WeightFormat weights) {
    const TempDirectory directory(FilesOf(tiny));
    return CudaTransformer::Load(directory.path(), OptionsOf(dtype, weights),
                                 *device)
        .status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const TinyModel tiny = MakeTinyModel(Shapes()[0], 5);
  EXPECT_THAT(error(tiny, DType::kFloat16, WeightFormat::kFp8),
              StatusIs(kInvalid, HasSubstr("fp8 need dtype bf16")));
  EXPECT_THAT(error(tiny, DType::kBFloat16, WeightFormat::kInt8),
              StatusIs(kInvalid,
                       HasSubstr("must be stored or fp8 on a GPU, got int8")));
  TinyModel bad = Fp8Model(tiny);
  bad.tensors["model.layers.1.mlp.down_proj.weight"].values[3 * 256 + 1] =
      std::nanf("");
  EXPECT_THAT(error(bad, DType::kBFloat16, WeightFormat::kAsStored),
              StatusIs(kInvalid, HasSubstr("down_proj.weight: row 3 has a "
                                           "NaN")));
}

}  // namespace
}  // namespace espalier
