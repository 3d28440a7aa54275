// What the device has of a batch after any other batches, with words of the
// host in place of its memory: every array that a step reads, each in a place
// of its own, and nothing is sent twice. Needs no device.
#include "executor/cuda/cuda_batch_uploader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/any_batch_image.h"
#include "tests/executor/cuda/expect_batch.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

constexpr CudaAttentionShape kMirrorAttention = {.num_heads = 4,
                                                 .num_kv_heads = 2,
                                                 .head_dim = 16,
                                                 .page_size = 4,
                                                 .dtype = DType::kFloat32};
constexpr CudaStepLimits kMirrorLimits = {
    .max_rows = AnyBatchImage::kMaxLines,
    .max_tokens = AnyBatchImage::kMaxTokens,
    .num_slots = AnyBatchImage::kMaxSlots,
    .table_stride = 8,
    .max_candidates = 2048,
    .max_eos_token_ids = 64,
    .max_edits = AnyBatchImage::kMaxEdits,
    .max_best_tokens = 1024,
    .max_items = 1024,
    .max_partials = 1024};

class CudaBatchMirrorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BeginDryRun(90);
    auto memory = CudaStepMemory::Create(kMirrorLimits, PageId{0}, 4);
    ASSERT_OK(memory.status());
    memory_ = std::make_unique<CudaStepMemory>(*std::move(memory));
    device_.num_sms = 132;
    device_.compute_capability = 90;
    mirror_ = std::make_unique<CudaBatchUploader>(
        memory_->arrays(), memory_->limits(), kMirrorAttention, device_);
    words_.assign(memory_->num_bytes() / sizeof(int), 0);
  }

  const CudaStepArrays& arrays() const { return memory_->arrays(); }

  CudaDelta Send(const CudaInputBatch& image) {
    CudaDelta delta(memory_->words());
    mirror_->Send(image, &delta);
    for (const CudaStagedWrite& segment : delta.segments()) {
      std::copy_n(delta.payload().begin() + segment.source, segment.count,
                  words_.begin() + segment.target);
    }
    return delta;
  }

  // Lists that a step makes, anywhere in the room at the end, and where they
  // are.
  void WriteMadeEdits(const CudaInputBatch& image) {
    DiscardFailedStep(
        arrays().edits + image.shape.max_edits - image.num_device_edits,
        image.num_device_edits);
    for (int line = 0; line < image.num_logits_rows(); ++line) {
      if (IsMadeByTheStep(image, line))
        DiscardFailedStep(arrays().row_edits + line, 1);
    }
  }

  template <typename T>
  void DiscardFailedStep(const T* array, int64_t size) {
    std::fill_n(words_.begin() + PlaceOf(array), size * sizeof(T) / sizeof(int),
                0x5A5A5A5A);
  }

  void ExpectSent(const CudaInputBatch& image) const {
    const auto read = [this](const void* from, void* to, size_t bytes) {
      std::memcpy(to, words_.data() + PlaceOf(from), bytes);
    };
    ExpectBatch(image, arrays(), read);
    EXPECT_EQ(mirror_->has_partials(),
              ExpectWork(image, arrays(), kMirrorAttention, kMirrorLimits,
                         device_, read));
  }

  std::unique_ptr<CudaStepMemory> memory_;
  std::unique_ptr<CudaBatchUploader> mirror_;

 private:
  int64_t PlaceOf(const void* address) const {
    return static_cast<const int*>(address) - memory_->words();
  }
  CudaDevice device_;
  std::vector<int> words_;  // in place of the device's
};

TEST_F(CudaBatchMirrorTest, WhatAStepReadsIsThereAndNothingIsSentTwice) {
  AnyBatchImage any(7);
  for (int i = 0; i < Cases(1000, 100); ++i) {
    SCOPED_TRACE(Concat("image ", i));
    const CudaInputBatch image = any.Make();
    Send(image);
    ExpectSent(image);
    WriteMadeEdits(image);
    const CudaDelta again = Send(image);
    // What there is of prompts the device writes over between steps.
    EXPECT_EQ(again.empty(), image.prompt_tokens.empty());
    if (HasFailure()) return;
  }
}

// Two beams that are asked for in this way, with little room for edits.
CudaInputBatch ImageOfTwoBeams(const CudaGroupRequest& request) {
  CudaInputBatch::Shape shape = AnyBatchImage::kShape;
  shape.max_edits = 100;
  CudaGroup group;
  group.num_slots = 2;
  group.position = 50;
  CudaInputBatch image(shape);
  image.AddBeams(group, request);
  return image;
}

// Lists of the host that reach into the room where the device makes its own.
TEST_F(CudaBatchMirrorTest, ListsThatTheDeviceWroteOverAreSentAgain) {
  SelectionParams listed_rule, made_rule;
  listed_rule.processors.suppress_tokens.resize(
      AnyBatchImage::kShape.vocab_size);
  std::iota(listed_rule.processors.suppress_tokens.begin(),
            listed_rule.processors.suppress_tokens.end(), 0);
  made_rule.processors.repetition_penalty = 1.5f;
  const std::vector<std::vector<TokenId>> histories = {{1}, {2}};
  const CudaInputBatch listed =
      ImageOfTwoBeams({.rule = &listed_rule, .histories = histories});
  const CudaInputBatch made = ImageOfTwoBeams({.rule = &made_rule});
  ASSERT_EQ(listed.edits.size(), 80u);
  ASSERT_EQ(made.num_device_edits, 80);
  for (const CudaInputBatch* const image : {&listed, &made, &listed}) {
    Send(*image);
    ExpectSent(*image);
    WriteMadeEdits(*image);
  }
}

TEST_F(CudaBatchMirrorTest, AllOfItIsSentAgainWhereItWasLost) {
  AnyBatchImage any(8);
  for (int i = 0; i < Cases(200, 20); ++i) {
    SCOPED_TRACE(Concat("image ", i));
    const CudaInputBatch image = any.Make();
    Send(image);
    ForEachBatchArray(
        [&](const CudaArrayInfo& info, const auto* array) {
          DiscardFailedStep(array, info.max_size(kMirrorLimits));
        },
        arrays());
    mirror_->Forget();
    Send(image);
    ExpectSent(image);
    if (HasFailure()) return;
  }
}

TEST_F(CudaBatchMirrorTest, EveryArrayHasAPlaceOfItsOwn) {
  std::vector<std::pair<const char*, const char*>> ranges;
  const auto add = [&]<typename T>(const CudaArrayInfo& info, const T* array) {
    const int64_t size = info.max_size(kMirrorLimits);
    ASSERT_NE(array, nullptr) << info.name;
    ASSERT_GT(size, 0) << info.name;
    const auto* const begin = reinterpret_cast<const char*>(array);
    ranges.emplace_back(begin, begin + size * sizeof(T));
  };
  ForEachBatchArray(add, arrays());
  ForEachAttentionArray(add, arrays());
  std::sort(ranges.begin(), ranges.end());
  const auto* const words = reinterpret_cast<const char*>(memory_->words());
  EXPECT_GE(ranges.front().first, words);
  EXPECT_LE(ranges.back().second, words + memory_->num_bytes());
  for (size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  }
}

}  // namespace
}  // namespace espalier::testing
