// Device sampling, whole: from logits in device memory to drawn tokens, cold
// (cold_logits.h).
//
//   bin/cuda_sample_benchmark        all shapes
//   bin/cuda_sample_benchmark 1 64   those of 1 and of 64 rows
//
// Columns: microseconds a call (median of replays), and the bytes of the
// logits, which are read once at least, over that time.
#include <cstdio>

#include "base/cuda.h"
#include "benchmarks/kernels/cold_logits.h"
#include "benchmarks/kernels/sample_call.h"

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

void Measure(int num_rows, int vocab_size, DType dtype, const Case& c,
             const CudaDevice& device, cudaStream_t stream) {
  const ColdLogits logits(size_t(num_rows) * vocab_size, dtype);
  const SampleCall call(num_rows, vocab_size, dtype, c.params, c.num_edits);
  const float us = logits.Time(stream, [&](const void* of_call) {
    return call.Enqueue(of_call, device, stream);
  });
  std::printf("%4d x %6d %s  %-32s %8.2f us  %6.3f TB/s\n", num_rows,
              vocab_size, dtype == kF32 ? "f32 " : "bf16", c.name, us,
              logits.call_bytes() / us * 1e-6);
}

void Run(const WantedSizes& rows) {
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s\n", device.name.c_str());
  const CudaStream stream = Get(CudaStream::Create());
  for (const int num_rows : {1, 8, 64, 512}) {
    if (!rows.Has(num_rows)) continue;
    for (const Case& c : kCases) {
      Measure(num_rows, 128256, kF32, c, device, stream.get());
    }
    Measure(num_rows, 128256, kBF16, kCases[4], device, stream.get());
    Measure(num_rows, 32000, kF32, kCases[4], device, stream.get());
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Run(espalier::WantedSizes(argc, argv));
}
