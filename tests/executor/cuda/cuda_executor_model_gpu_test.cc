// A caller's own model on the device: next tokens by the last one alone. The
// executor runs it through CudaModel, by itself and beside another model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda_device_scope.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "tests/device_arrays.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

constexpr int kBigramVocab = 64;

ModelDescription BigramDescription() {
  return {.vocab_size = kBigramVocab,
          .max_context = 256,
          .eos_token_ids = {2},
          .default_max_new_tokens = 20,
          .num_pages = 600,
          .page_size = 16};
}

// The logits after each token.
std::vector<float> BigramTable() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> table(kBigramVocab * kBigramVocab);
  for (float& logit : table) logit = normal(random);
  return table;
}

class BigramOnHost : public Model {
 public:
  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    for (const PlanRow& row : plan.rows) {
      const std::span<const TokenId> last =
          plan.row_tokens(row).last(row.num_logits);
      for (int i = 0; i < row.num_logits; ++i) {
        std::copy_n(
            table_.begin() + last[i] * kBigramVocab, kBigramVocab,
            logits.begin() + int64_t{row.first_logits + i} * kBigramVocab);
      }
    }
    return absl::OkStatus();
  }

 private:
  const ModelDescription description_ = BigramDescription();
  const std::vector<float> table_ = BigramTable();
};

// It has no attention; its pages are there to be copied.
class BigramOnDevice : public CudaModel {
 public:
  // REQUIRES: `device` is the calling thread's current one.
  explicit BigramOnDevice(const CudaDevice& device)
      : device_(device),
        table_(Upload(BigramTable())),
        norm_(Upload(std::vector<float>(kBigramVocab, 1.0f))),
        x_(Upload(std::vector<float>(bounds_.max_tokens * kBigramVocab))),
        normed_(Upload(std::vector<float>(bounds_.max_tokens * kBigramVocab))),
        pages_(Upload(std::vector<float>((description_.num_pages + 1) *
                                         cache_.page_stride()))) {
    cache_.data = pages_.data();
  }

  const ModelDescription& description() const override { return description_; }
  const CudaDevice& device() const override { return device_; }
  const CudaCallBounds& bounds() const override { return bounds_; }
  const CudaKvCache& cache() const override { return cache_; }
  CudaAttentionShape attention_shape() const override {
    return {.head_dim = cache_.head_dim, .dtype = cache_.dtype};
  }
  PageId null_page() const override { return {description_.num_pages}; }
  CudaMemoryParts memory() const override {
    return {{"bigrams", static_cast<int64_t>(table_.size_bytes())}};
  }
  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override {
    if (batch.num_tokens > bounds_.max_tokens) return Internal("tokens");
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(device_.ordinal));
    RETURN_IF_ERROR(CudaEmbed(
        batch.tokens, batch.num_tokens,
        {table_.data(), DType::kFloat32, kBigramVocab, kBigramVocab},
        {.weight = norm_.data(), .size = kBigramVocab, .width = kBigramVocab},
        x_.data(), normed_.data(), stream));
    return CudaGatherRows(
        batch.logits_tokens, batch.num_logits,
        {x_.data(), logits, kBigramVocab * static_cast<int>(sizeof(float))}, {},
        stream);
  }

 private:
  const ModelDescription description_ = BigramDescription();
  const CudaCallBounds bounds_ = {.max_tokens = 256,
                                  .max_logits = 128,
                                  .max_attention_items = 1024,
                                  .max_attention_partials = 1024};
  const CudaDevice device_;
  CudaKvCache cache_ = {.dtype = DType::kFloat32,
                        .num_pages = description_.num_pages + 1,
                        .page_size = description_.page_size,
                        .head_dim = 8};
  const DeviceBuffer<float> table_;
  const DeviceBuffer<float> norm_;
  const DeviceBuffer<float> x_;
  const DeviceBuffer<float> normed_;
  const DeviceBuffer<float> pages_;
};

class CudaExecutorModelTest : public CudaExecutorTest {
 protected:
  static std::vector<Request> BigramRequests() {
    std::mt19937 random(17);
    std::vector<Request> requests;
    for (int i = 0; i < Cases(40, 6); ++i) {
      Request& request = requests.emplace_back();
      for (int t = 1 + random() % 40; t > 0; --t) {
        request.prompt_tokens.push_back(3 + random() % (kBigramVocab - 3));
      }
      GenerationParams& params = request.params;
      params.max_new_tokens = 1 + random() % 30;
      if (i % 4 == 3) {
        params.do_sample = true;
        params.best_of = 1 + random() % 5;
        params.seed = random();
      } else {
        params.num_beams = 1 + random() % 6;
        params.num_return_sequences = params.num_beams;
      }
      EXPECT_OK(ValidateRequest(BigramDescription(), &request));
    }
    return requests;
  }

  static std::unique_ptr<CudaExecutor> MakeBigramExecutor() {
    EXPECT_EQ(cudaSetDevice(device_->ordinal), cudaSuccess);
    auto steps =
        CudaExecutor::Create(std::make_shared<BigramOnDevice>(*device_));
    EXPECT_OK(steps.status());
    return steps.ok() ? *std::move(steps) : nullptr;
  }
};

TEST_F(CudaExecutorModelTest, AnswersAreThoseOfTheSameModelOnTheHost) {
  const std::vector<Request> requests = BigramRequests();
  BigramOnHost on_host;
  const Answers expected = Drive(*MakeExecutor(&on_host, *pool_), requests, {});
  const auto steps = MakeBigramExecutor();
  ASSERT_NE(steps, nullptr);
  for (const int num_in_flight : {1, 2}) {
    ExpectSame(expected,
               Drive(*steps, requests, {.num_in_flight = num_in_flight}),
               "bigrams");
  }
  EXPECT_GT(steps->figures().num_graph_launches, 0);
}

// As a model and its draft: on one device, from two threads.
TEST_F(CudaExecutorModelTest, TwoModelsOfOneDeviceAnswerAsAlone) {
  const std::vector<Request> bigram_requests = BigramRequests();
  const std::vector<Request> transformer_requests =
      AnyRequests(Cases(30, 4), 23);
  const auto bigrams = MakeBigramExecutor();
  const OnDevice transformer = Load(Float32());
  ASSERT_NE(bigrams, nullptr);
  ASSERT_NE(transformer.steps, nullptr);
  const DriveOptions drive = {.num_in_flight = 2};
  const Answers bigram_answers = Drive(*bigrams, bigram_requests, drive);
  const Answers transformer_answers =
      Drive(*transformer.steps, transformer_requests, drive);
  std::thread other([&] {
    for (int i = 0; i < Cases(5, 1); ++i) {
      ExpectEqual(bigram_answers, Drive(*bigrams, bigram_requests, drive));
    }
  });
  for (int i = 0; i < Cases(5, 1); ++i) {
    ExpectEqual(transformer_answers,
                Drive(*transformer.steps, transformer_requests, drive));
  }
  other.join();
}

}  // namespace
}  // namespace espalier::testing
