// Device selection, whole: from logits in device memory to each group's
// candidates. A graph of calls, each reading other logits, so that they come
// from memory and not from a cache (over 200 MB in turn).
//
//   bin/cuda_select_benchmark        all shapes
//   bin/cuda_select_benchmark 4 16   those of 4 and of 16 rows
//
// Columns: microseconds a call (median of replays), and the bytes of the
// logits, which are read once, over that time.
#include <cstdio>
#include <vector>

#include "base/cuda.h"
#include "benchmarks/kernels/cold_logits.h"
#include "kernels/select/cuda_select.h"

namespace espalier {
namespace {

struct Shape {
  int num_rows;
  int vocab_size;
  DType dtype;
  int rows_per_group;
  int num_candidates;
  int num_edits = 0;    // penalties a row
  bool equal = false;   // all logits: nothing but ties
  bool likely = false;  // the tokens with edits, as those of a text are
};

constexpr DType kF32 = DType::kFloat32, kBF16 = DType::kBFloat16;
constexpr Shape kShapes[] = {
    {4, 32000, kF32, 4, 16},
    {4, 32000, kBF16, 4, 16},
    {4, 50257, kF32, 4, 16},
    {4, 50257, kBF16, 4, 16},
    {1, 128256, kF32, 1, 16},
    {1, 128256, kF32, 1, 64},
    {4, 128256, kF32, 4, 8},
    {16, 128256, kF32, 4, 16},
    {16, 128256, kBF16, 4, 16},
    {16, 128256, kF32, 4, 64},
    {16, 128256, kF32, 16, 64},
    {16, 50257, kF32, 4, 16},
    {64, 128256, kF32, 4, 16},
    {256, 128256, kF32, 4, 16},
    {1024, 128256, kF32, 1, 16},
    {1024, 128256, kF32, 1, 64},
    {1024, 128256, kBF16, 1, 16},
    {1024, 128256, kF32, 64, 128},
    {512, 128256, kF32, 512, 1024},
    {1, 151936, kF32, 1, 10000},
    {5000, 151936, kF32, 5000, 10000},
    {4, 128256, kF32, 4, 8, 200},
    {4, 128256, kF32, 4, 8, 2000},
    {16, 128256, kF32, 16, 32, 40000},
    {4, 128256, kF32, 4, 8, 0, true},
    {4, 128256, kF32, 4, 8, 190},
    {4, 128256, kF32, 4, 8, 190, false, true},
    {64, 128256, kF32, 4, 8, 190},
    {64, 128256, kF32, 4, 8, 190, false, true},
};

void Measure(const Shape& shape, const CudaDevice& device,
             cudaStream_t stream) {
  ColdLogits logits(size_t(shape.num_rows) * shape.vocab_size, shape.dtype,
                    shape.equal);
  const auto edited_token = [&](int i) {
    return i * (shape.vocab_size / shape.num_edits);
  };
  for (int i = 0; shape.likely && i < shape.num_edits; ++i) {
    logits.MakeLikely(edited_token(i), shape.vocab_size);
  }
  std::vector<CudaSelectGroup> groups;
  std::vector<int> row_groups;
  std::vector<float> cum;
  std::vector<CudaRowEdits> row_edits;
  std::vector<TokenEdit> edits;
  for (int row = 0; row < shape.num_rows; ++row) {
    if (row % shape.rows_per_group == 0) {
      const int g = static_cast<int>(groups.size());
      groups.push_back({row, shape.rows_per_group, shape.num_candidates,
                        g * shape.num_candidates});
    }
    row_groups.push_back(static_cast<int>(groups.size()) - 1);
    const int begin = static_cast<int>(edits.size());
    row_edits.push_back({begin, begin + shape.num_edits, 1.2f});
    for (int i = 0; i < shape.num_edits; ++i) {
      edits.push_back({.token = edited_token(i), .repeated = true});
    }
    // Beams some nats apart.
    cum.push_back(-4.0f * (row % shape.rows_per_group) / shape.rows_per_group);
  }
  const int num_groups = static_cast<int>(groups.size());
  const auto device_groups = Get(Upload(groups));
  const auto device_row_groups = Get(Upload(row_groups));
  const auto device_cum = Get(Upload(cum));
  const auto device_row_edits = Get(Upload(row_edits));
  const auto device_edits = Get(Upload(edits));
  const auto device_num_groups = Get(Upload(std::vector{num_groups}));
  const auto candidates = Get(DeviceBuffer<Candidate>::Create(
      size_t(num_groups) * shape.num_candidates));
  const auto counts = Get(DeviceBuffer<int>::Create(num_groups));
  CudaSelectInputs in;
  in.dtype = shape.dtype;
  in.num_rows = shape.num_rows;
  in.vocab_size = shape.vocab_size;
  in.max_groups = num_groups;
  in.max_candidates = shape.num_candidates;
  in.max_group_rows = shape.rows_per_group;
  in.num_groups = device_num_groups.data();
  in.groups = device_groups.data();
  in.row_groups = device_row_groups.data();
  in.cum_log_probs = device_cum.data();
  if (shape.num_edits > 0) in.row_edits = device_row_edits.data();
  in.edits = device_edits.data();
  const auto scratch =
      Get(DeviceBuffer<char>::Create(CudaSelectScratchBytes(in)));
  const float us = logits.Time(stream, [&](const void* of_call) {
    in.logits = of_call;
    return CudaSelect(in, {candidates.data(), counts.data()}, scratch.data(),
                      device, stream);
  });
  std::printf("%5d x %6d %s  groups of %4d  m %5d  %9.2f us  %6.3f TB/s%s\n",
              shape.num_rows, shape.vocab_size,
              shape.dtype == kF32 ? "f32 " : "bf16", shape.rows_per_group,
              shape.num_candidates, us, logits.call_bytes() / us * 1e-6,
              shape.equal ? "  equal logits"
              : shape.num_edits > 0
                  ? Concat("  ", shape.num_edits, " edits a row",
                           shape.likely ? ", of likely tokens" : "")
                        .c_str()
                  : "");
}

void Run(const WantedSizes& rows) {
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s\n", device.name.c_str());
  const CudaStream stream = Get(CudaStream::Create());
  for (const Shape& shape : kShapes) {
    if (rows.Has(shape.num_rows)) Measure(shape, device, stream.get());
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Run(espalier::WantedSizes(argc, argv));
}
