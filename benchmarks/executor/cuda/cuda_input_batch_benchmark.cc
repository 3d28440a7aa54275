// Host work to send a step's batch to a GPU: writing its arrays and comparing
// them with the device's copies (executor/cuda/batch/cuda_input_batch.h,
// executor/cuda/batch/cuda_batch_uploader.h). Needs no GPU: transfers are
// collected and dropped.
//
//   cuda_input_batch_benchmark
//
// Steady is a decode step like the previous one, for which nothing is sent:
// Beams of asynchronously scheduled groups, Rows of per-row selections. Changed
// is a step without anything on the device: attention is planned, and
// everything is sent.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <vector>

#include "executor/cuda/batch/cuda_batch_uploader.h"

namespace espalier {
namespace {

constexpr CudaStepLimits kLimits = {.max_rows = 1024,
                                    .max_tokens = 1024,
                                    .num_slots = 1024,
                                    .table_stride = 64,
                                    .max_candidates = 1 << 20,
                                    .max_eos_token_ids = 1024,
                                    .max_edits = 1 << 20,
                                    .max_best_tokens = 1024,
                                    .max_items = 4096,
                                    .max_partials = 4096};
constexpr CudaInputBatch::Shape kShape = {.vocab_size = 32000,
                                          .page_size = 16,
                                          .max_positions = 1024,
                                          .max_edits = kLimits.max_edits};

CudaDevice Device() {
  CudaDevice device;
  device.num_sms = 132;
  device.compute_capability = 90;
  return device;
}

// The arrays of a step one after the other, in words of the host.
class Arrays {
 public:
  Arrays() : words_(1 << 23) {
    int* next = words_.data();
    const auto place = [&]<typename T>(const CudaArrayInfo& info, T*& array) {
      array = reinterpret_cast<T*>(next);
      next += info.max_size(kLimits) * sizeof(T) / sizeof(int);
    };
    ForEachBatchArray(place, arrays_);
    ForEachAttentionArray(place, arrays_);
  }
  const CudaStepArrays& get() const { return arrays_; }
  const int* words() const { return words_.data(); }

 private:
  std::vector<int> words_;
  CudaStepArrays arrays_;
};

// As many groups of as many slots.
class Step {
 public:
  Step(int num_groups, int num_slots, SelectionKind kind)
      : kind_(kind), slots_(num_slots) {
    params_.edits = std::make_shared<const ScoreEdits>(params_.processors);
    std::iota(slots_.begin(), slots_.end(), 0);
    for (int i = 0; i < num_groups; ++i) {
      CudaGroup& group = groups_.emplace_back();
      group.first_slot = i * num_slots;
      group.num_slots = num_slots;
      group.position = 300;
      group.eos_token_ids = {2};
    }
  }
  void AddTo(CudaInputBatch* batch) const {
    const CudaGroupRequest request = {.kind = kind_,
                                      .num_candidates = 2 * num_slots(),
                                      .num_generated = 9,
                                      .params = &params_,
                                      .slots = slots_};
    for (const CudaGroup& group : groups_) {
      benchmark::DoNotOptimize(batch->AddBeams(group, request));
    }
  }

 private:
  int num_slots() const { return static_cast<int>(slots_.size()); }

  const SelectionKind kind_;
  SelectionParams params_;
  std::vector<int> slots_;
  std::vector<CudaGroup> groups_;
};

void Steady(benchmark::State& state, SelectionKind kind) {
  const Arrays arrays;
  const Step step(static_cast<int>(state.range(0)),
                  static_cast<int>(state.range(1)), kind);
  CudaBatchUploader uploader(arrays.get(), kLimits, {}, Device());
  CudaDelta delta(arrays.words());
  for ([[maybe_unused]] const auto _ : state) {
    CudaInputBatch batch(kShape);
    step.AddTo(&batch);
    uploader.Send(batch, &delta);
    delta.Clear();
  }
}
BENCHMARK_CAPTURE(Steady, Beams, SelectionKind::kBeams)
    ->Args({8, 1})
    ->Args({512, 1})
    ->Args({64, 8})
    ->Args({8, 64});
BENCHMARK_CAPTURE(Steady, Draws, SelectionKind::kDraws)->Args({512, 1});
BENCHMARK_CAPTURE(Steady, Rows, SelectionKind::kRows)->Args({8, 64});

// With attention's work list, which is planned anew.
void Changed(benchmark::State& state) {
  const Arrays arrays;
  const Step step(static_cast<int>(state.range(0)),
                  static_cast<int>(state.range(1)), SelectionKind::kBeams);
  CudaBatchUploader uploader(arrays.get(), kLimits, {}, Device());
  CudaDelta delta(arrays.words());
  for ([[maybe_unused]] const auto _ : state) {
    uploader.Forget();
    CudaInputBatch batch(kShape);
    step.AddTo(&batch);
    uploader.Send(batch, &delta);
    delta.Clear();
  }
}
BENCHMARK(Changed)->Args({8, 1})->Args({512, 1})->Args({8, 64});

}  // namespace
}  // namespace espalier

BENCHMARK_MAIN();
