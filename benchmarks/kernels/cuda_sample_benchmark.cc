// Device sampling, whole: from logits in device memory to drawn tokens, cold
// (cold_logits.h).
//
//   bin/cuda_sample_benchmark        all shapes
//   bin/cuda_sample_benchmark 1 64   those of 1 and of 64 rows
//
// Columns: microseconds a call (median of replays), and the bytes of the
// logits, which are read once at least, over that time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/cuda.h"
#include "benchmarks/kernels/cold_logits.h"
#include "kernels/sample/cuda_sample.h"

namespace espalier {
namespace {

constexpr DType kF32 = DType::kFloat32, kBF16 = DType::kBFloat16;

struct Case {
  const char* name;
  SamplingParams params;
  int num_edits = 0;  // penalties a row
};

const Case kCases[] = {
    {"greedy", {.temperature = 0}},
    {"temperature 0.8", {.temperature = 0.8f}},
    {"min_p 0.05", {.temperature = 0.8f, .min_p = 0.05f}},
    {"top_k 50", {.temperature = 0.8f, .top_k = 50}},
    {"top_k 50, top_p 0.9, min_p 0.05",
     {.temperature = 0.8f, .min_p = 0.05f, .top_k = 50, .top_p = 0.9f}},
    {"... and 100 penalties",
     {.temperature = 0.8f, .min_p = 0.05f, .top_k = 50, .top_p = 0.9f},
     100},
    {"top_k 1000", {.top_k = 1000}},
    {"top_p 0.9", {.temperature = 0.8f, .top_p = 0.9f}},
    {"top_p 0.9, flat", {.temperature = 1.0f, .top_p = 0.9f}},
    {"typical_p 0.9", {.temperature = 0.8f, .typical_p = 0.9f}},
};

absl::Status Measure(int num_rows, int vocab_size, DType dtype, const Case& c,
                     const CudaDevice& device, cudaStream_t stream) {
  const size_t call_size = size_t(num_rows) * vocab_size;
  const size_t call_bytes = call_size * NumBytes(dtype);
  const int num_buffers = NumColdBuffers(call_bytes);
  const int num_calls = NumCalls(num_buffers);
  ASSIGN_OR_RETURN(const Logits logits,
                   Logits::Create(call_size * num_buffers, dtype));
  std::vector<CudaDraw> draws;
  std::vector<CudaRowEdits> row_edits;
  std::vector<TokenEdit> edits;
  for (int row = 0; row < num_rows; ++row) {
    draws.push_back({.row = row,
                     .candidate = row,
                     .sample = static_cast<uint32_t>(row),
                     .position = 7});
    const int begin = static_cast<int>(edits.size());
    row_edits.push_back({begin, begin + c.num_edits, 1.2f});
    for (int i = 0; i < c.num_edits; ++i) {
      edits.push_back({.token = i * (vocab_size / c.num_edits),
                       .repeated = true,
                       .penalty = 0.5f});
    }
  }
  ASSIGN_OR_RETURN(const auto device_draws, Upload(draws));
  ASSIGN_OR_RETURN(const auto num_draws, Upload(std::vector{num_rows}));
  ASSIGN_OR_RETURN(const auto row_params,
                   Upload(std::vector<int>(num_rows, 0)));
  ASSIGN_OR_RETURN(const auto params, Upload(std::vector{c.params}));
  ASSIGN_OR_RETURN(const auto cum, Upload(std::vector<float>(num_rows)));
  ASSIGN_OR_RETURN(const auto device_row_edits, Upload(row_edits));
  ASSIGN_OR_RETURN(const auto device_edits, Upload(edits));
  ASSIGN_OR_RETURN(const auto candidates,
                   DeviceBuffer<Candidate>::Create(num_rows));
  CudaSampleInputs in;
  in.dtype = dtype;
  in.num_rows = num_rows;
  in.vocab_size = vocab_size;
  in.max_draws = num_rows;
  in.num_draws = num_draws.data();
  in.draws = device_draws.data();
  in.row_params = row_params.data();
  in.params = params.data();
  in.cum_log_probs = cum.data();
  if (c.num_edits > 0) in.row_edits = device_row_edits.data();
  in.edits = device_edits.data();
  ASSIGN_OR_RETURN(const auto scratch,
                   DeviceBuffer<char>::Create(CudaSampleScratchBytes(in)));
  ASSIGN_OR_RETURN(
      const CudaGraph graph, CaptureGraph(stream, [&]() -> absl::Status {
        for (int call = 0; call < num_calls; ++call) {
          in.logits = logits.data() + call % num_buffers * call_bytes;
          RETURN_IF_ERROR(CudaSample(in, candidates.data(), scratch.data(),
                                     device, stream));
        }
        return absl::OkStatus();
      }));
  ASSIGN_OR_RETURN(const float us,
                   MedianMicroseconds(graph, num_calls, stream));
  std::printf("%4d x %6d %s  %-32s %8.2f us  %6.3f TB/s\n", num_rows,
              vocab_size, dtype == kF32 ? "f32 " : "bf16", c.name, us,
              call_bytes / us * 1e-6);
  return absl::OkStatus();
}

absl::Status Run(const std::vector<int>& rows) {
  ASSIGN_OR_RETURN(const CudaDevice device, CudaDevice::Open(0));
  std::printf("%s\n", device.name.c_str());
  ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  for (const int num_rows : {1, 8, 64, 512}) {
    if (!rows.empty() && !std::ranges::count(rows, num_rows)) continue;
    for (const Case& c : kCases) {
      RETURN_IF_ERROR(Measure(num_rows, 128256, kF32, c, device, stream.get()));
    }
    RETURN_IF_ERROR(
        Measure(num_rows, 128256, kBF16, kCases[4], device, stream.get()));
    RETURN_IF_ERROR(
        Measure(num_rows, 32000, kF32, kCases[4], device, stream.get()));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  std::vector<int> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  const absl::Status status = espalier::Run(rows);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
