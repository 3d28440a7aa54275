// Device verification, whole: from rows of logits in device memory to accepted
// and recovered tokens, cold (cold_logits.h).
//
//   bin/cuda_verify_benchmark        all shapes
//   bin/cuda_verify_benchmark 8 64   those of 8 and of 64 sequences
//
// Drafts are any tokens, so that every sequence is recovered from where chance
// decides: the most that there is to do. Columns: microseconds a call (median
// of replays); of a kernel that reads the same rows and does nothing else; of
// CudaSample, one draw a row with the same params; and the ratio of the first
// to the second.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/cuda_launch.cuh"
#include "benchmarks/kernels/cold_logits.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/verify/cuda_verify.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 128256;

struct Case {
  const char* name;
  SamplingParams params;
  bool has_rows = false;  // of drafts
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
        num_buffers_(NumColdBuffers(call_size_ * sizeof(float))),
        device_(device),
        stream_(stream),
        logits_(
            Get(Logits::Create(call_size_ * num_buffers_, DType::kFloat32))) {
    SetUpSampling(c);
    SetUpVerification(num_sequences, num_drafts, c);
  }

  int num_rows() const { return num_rows_; }

  float Verify() {
    return Time([&](const float* logits) {
      verify_.logits = logits;
      return CudaVerify(verify_,
                        {.tokens = tokens_.data(),
                         .log_probs = log_probs_.data(),
                         .num_accepted = accepted_.data()},
                        verify_scratch_.data(), device_, stream_);
    });
  }
  float Sample() {
    return Time([&](const float* logits) {
      sample_.logits = logits;
      return CudaSample(sample_, candidates_.data(), sample_scratch_.data(),
                        device_, stream_);
    });
  }
  float Read() {
    return Time([&](const float* logits) {
      return Launch(ReadOnce,
                    {.grid = dim3(device_.num_sms * 4), .block = dim3(512)},
                    stream_, reinterpret_cast<const float4*>(logits),
                    call_size_ / 4, log_probs_.data());
    });
  }

 private:
  template <typename Call>
  float Time(const Call& call) {
    const int num_calls = NumCalls(num_buffers_);
    const CudaGraph graph = Get(CaptureGraph(stream_, [&]() -> absl::Status {
      for (int i = 0; i < num_calls; ++i) {
        RETURN_IF_ERROR(call(reinterpret_cast<const float*>(logits_.data()) +
                             i % num_buffers_ * call_size_));
      }
      return absl::OkStatus();
    }));
    return Get(MedianMicroseconds(graph, num_calls, stream_));
  }

  void SetUpSampling(const Case& c) {
    std::vector<CudaDraw> draws;
    for (int row = 0; row < num_rows_; ++row) {
      draws.push_back({.row = row,
                       .candidate = row,
                       .sample = static_cast<uint32_t>(row),
                       .position = 7});
    }
    draws_ = Get(Upload(draws));
    num_draws_ = Get(Upload(std::vector{num_rows_}));
    row_params_ = Get(Upload(std::vector<int>(num_rows_, 0)));
    params_ = Get(Upload(std::vector{c.params}));
    cum_ = Get(Upload(std::vector<float>(num_rows_)));
    candidates_ = Get(DeviceBuffer<Candidate>::Create(num_rows_));
    sample_.num_rows = num_rows_;
    sample_.vocab_size = kVocabSize;
    sample_.max_draws = num_rows_;
    sample_.num_draws = num_draws_.data();
    sample_.draws = draws_.data();
    sample_.row_params = row_params_.data();
    sample_.params = params_.data();
    sample_.cum_log_probs = cum_.data();
    sample_scratch_ =
        Get(DeviceBuffer<char>::Create(CudaSampleScratchBytes(sample_)));
  }

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
    verify_.row_params = row_params_.data();
    verify_.params = params_.data();
    verify_scratch_ =
        Get(DeviceBuffer<char>::Create(CudaVerifyScratchBytes(verify_)));
  }

  const int num_rows_;
  const size_t call_size_;
  const int num_buffers_;
  const CudaDevice& device_;
  cudaStream_t stream_;
  Logits logits_;
  CudaSampleInputs sample_;
  CudaVerifyInputs verify_;
  DeviceBuffer<CudaDraw> draws_;
  DeviceBuffer<int> num_draws_, row_params_, num_sequences_, row_sequences_,
      accepted_;
  DeviceBuffer<SamplingParams> params_;
  DeviceBuffer<float> cum_, log_probs_;
  DeviceBuffer<Candidate> candidates_;
  DeviceBuffer<CudaVerifySequence> sequences_;
  DeviceBuffer<TokenId> drafts_, tokens_;
  DeviceBuffer<char> sample_scratch_, verify_scratch_;
};

void Run(const std::vector<int>& wanted) {
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s\n%-36s %9s %9s %9s %9s\n", device.name.c_str(),
              "5 positions of 128256 f32", "verify us", "read us", "sample us",
              "to read");
  const CudaStream stream = Get(CudaStream::Create());
  for (const int num_sequences : {1, 8, 64}) {
    if (!wanted.empty() && !std::ranges::count(wanted, num_sequences)) continue;
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
  std::vector<int> wanted;
  for (int i = 1; i < argc; ++i) wanted.push_back(std::atoi(argv[i]));
  espalier::Run(wanted);
  return 0;
}
