// Whole verification on a device: from rows of logits in device memory to
// accepted and recovered tokens, cold (cold_logits.h).
//
//   bin/cuda_verify_benchmark        all shapes
//   bin/cuda_verify_benchmark 8 64   those of 8 and of 64 sequences
//
// Drafts are random tokens, so that every sequence recovers at a random
// position: the worst case. Columns: microseconds per call (median of replays);
// of a kernel that only reads the same rows; of CudaSample, one draw per row
// with the same params; and the ratio of the first to the second. Verification
// skips work that a case does not need.
#include <cstdio>
#include <vector>

#include "base/cuda_launch.cuh"
#include "benchmarks/kernels/cold_logits.h"
#include "benchmarks/kernels/sample_call.h"
#include "kernels/verify/cuda_verify.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 128256;

struct Case {
  const char* name;
  SamplingParams params;
  bool has_rows = false;  // drafts have rows of logits
  VerifyMode mode = VerifyMode::kRejection;
};

const Case kCases[] = {
    {"temperature 0.8, no draft rows", {.temperature = 0.8f}},
    {"temperature 0.8", {.temperature = 0.8f}, true},
    {"top_k 50, top_p 0.9, no draft rows",
     {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}},
    {"top_k 50, top_p 0.9",
     {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f},
     true},
    {"top_p 0.9", {.temperature = 0.8f, .top_p = 0.9f}, true},
    {"min_p 0.05", {.temperature = 0.8f, .min_p = 0.05f}, true},
    {"greedy", {.temperature = 0}},
    {"temperature 0.8, coupled",
     {.temperature = 0.8f},
     false,
     VerifyMode::kCoupled},
};

// The least that any kernel does with rows.
__global__ __launch_bounds__(512) void ReadOnce(const float4* logits,
                                                size_t size, float* sum) {
  LaunchDependents();
  GridDependencyWait();
  constexpr int kAtOnce = 8;
  const size_t stride = size_t(gridDim.x) * blockDim.x;
  float total = 0;
  for (size_t first = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
       first < size; first += kAtOnce * stride) {
    float4 x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const size_t at = first + i * stride;
      x[i] = logits[at < size ? at : size - 1];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      total += x[i].x + x[i].y + x[i].z + x[i].w;
  }
  if (total == 12345.678f) *sum = total;  // never
}

// One shape: arrays of both kernels.
class Bench {
 public:
  Bench(int num_sequences, int num_drafts, const Case& c,
        const CudaDevice& device, cudaStream_t stream)
      : num_rows_(num_sequences *
                  (num_drafts + 1 + (c.has_rows ? num_drafts : 0))),
        call_size_(size_t(num_rows_) * kVocabSize),
        device_(device),
        stream_(stream),
        logits_(call_size_, DType::kFloat32),
        sample_(num_rows_, kVocabSize, DType::kFloat32, c.params) {
    SetUpVerification(num_sequences, num_drafts, c);
  }

  int num_rows() const { return num_rows_; }

  float Verify() {
    return logits_.Time(stream_, [&](const void* logits) {
      verify_.logits = logits;
      return CudaVerify(verify_,
                        {.tokens = tokens_.data(),
                         .log_probs = log_probs_.data(),
                         .num_accepted = accepted_.data()},
                        verify_scratch_.data(), device_, stream_);
    });
  }
  float Sample() {
    return logits_.Time(stream_, [&](const void* logits) {
      return sample_.Enqueue(logits, device_, stream_);
    });
  }
  float Read() {
    return logits_.Time(stream_, [&](const void* logits) {
      return Launch(ReadOnce,
                    {.grid = dim3(device_.num_sms * 4), .block = dim3(512)},
                    stream_, static_cast<const float4*>(logits), call_size_ / 4,
                    log_probs_.data());
    });
  }

 private:
  void SetUpVerification(int num_sequences, int num_drafts, const Case& c) {
    std::vector<CudaVerifySequence> sequences;
    std::vector<int> row_sequences;
    std::vector<TokenId> drafts;
    for (int s = 0; s < num_sequences; ++s) {
      CudaVerifySequence sequence = {
          .first_row = static_cast<int>(row_sequences.size()),
          .first_draft = s * num_drafts,
          .num_drafts = num_drafts,
          .first_token = s * (num_drafts + 1),
          .sample = static_cast<uint32_t>(s),
          .position = 7,
          .mode = c.mode};
      row_sequences.insert(row_sequences.end(), num_drafts + 1, s);
      if (c.has_rows) {
        sequence.first_draft_row = static_cast<int>(row_sequences.size());
        row_sequences.insert(row_sequences.end(), num_drafts, s);
      }
      sequences.push_back(sequence);
      for (int i = 0; i < num_drafts; ++i) {
        drafts.push_back((s * 7919 + i * 104729) % kVocabSize);
      }
    }
    sequences_ = Get(Upload(sequences));
    num_sequences_ = Get(Upload(std::vector{num_sequences}));
    row_sequences_ = Get(Upload(row_sequences));
    drafts_ = Get(Upload(drafts));
    const int num_tokens = num_sequences * (num_drafts + 1);
    counters_ = Get(Upload(std::vector<unsigned>(num_sequences)));
    tokens_ = Get(DeviceBuffer<TokenId>::Create(num_tokens));
    log_probs_ = Get(DeviceBuffer<float>::Create(num_tokens));
    accepted_ = Get(DeviceBuffer<int>::Create(num_sequences));
    verify_.num_rows = num_rows_;
    verify_.vocab_size = kVocabSize;
    verify_.max_sequences = num_sequences;
    verify_.num_sequences = num_sequences_.data();
    verify_.sequences = sequences_.data();
    verify_.row_sequences = row_sequences_.data();
    verify_.drafts = drafts_.data();
    verify_.row_params = sample_.inputs().row_params;
    verify_.params = sample_.inputs().params;
    verify_.counters = counters_.data();
    verify_.has_filters = HasFilters(c.params);
    verify_.has_draft_rows = c.has_rows;
    verify_scratch_ =
        Get(DeviceBuffer<char>::Create(CudaVerifyScratchBytes(verify_)));
  }

  const int num_rows_;
  const size_t call_size_;
  const CudaDevice& device_;
  cudaStream_t stream_;
  const ColdLogits logits_;
  const SampleCall sample_;
  CudaVerifyInputs verify_;
  DeviceBuffer<int> num_sequences_, row_sequences_, accepted_;
  DeviceBuffer<float> log_probs_;
  DeviceBuffer<CudaVerifySequence> sequences_;
  DeviceBuffer<TokenId> drafts_, tokens_;
  DeviceBuffer<unsigned> counters_;
  DeviceBuffer<char> verify_scratch_;
};

void Run(const WantedSizes& wanted) {
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s\n%-36s %9s %9s %9s %9s\n", device.name.c_str(),
              "5 positions of 128256 f32", "verify us", "read us", "sample us",
              "to read");
  const CudaStream stream = Get(CudaStream::Create());
  for (const int num_sequences : {1, 8, 64}) {
    if (!wanted.Has(num_sequences)) continue;
    for (const Case& c : kCases) {
      Bench bench(num_sequences, /*num_drafts=*/4, c, device, stream.get());
      const float verify = bench.Verify();
      const float read = bench.Read();
      std::printf("%2d %-33s %9.2f %9.2f %9.2f %9.2f  %d rows\n", num_sequences,
                  c.name, verify, read, bench.Sample(), verify / read,
                  bench.num_rows());
    }
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Run(espalier::WantedSizes(argc, argv));
}
