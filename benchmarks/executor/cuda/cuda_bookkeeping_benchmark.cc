// Cost per step of keeping beams on a GPU: moving tables of forked children and
// gathering the batch, making beams of candidates, and writing reports. Tail
// copies, the forward pass and selection are measured elsewhere.
//
//   cuda_bookkeeping_benchmark
//
// Prints microseconds per step, without and with advancing, the median over
// replays of a graph of many steps. Half of the beams are forked children that
// move. Then prints microseconds of moving a group to other slots, by distance.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "benchmarks/cuda_replays.h"
#include "benchmarks/median.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/transfer/cuda_delta.h"

namespace espalier {
namespace {

constexpr int kStepsInGraph = 100;
constexpr int kReplays = 15;
constexpr int kPageSize = 16;

struct Case {
  int num_groups;
  int num_slots;  // per group
};

// A batch whose groups' candidates are the same in every step.
class Batch {
 public:
  explicit Batch(const Case& c)
      : c_(c),
        memory_(Get(CudaStepMemory::Create(Limits(c), PageId{0}, kPageSize))),
        headers_(Get(PinnedBuffer<CudaReportRing::Header>::Create(1))),
        counts_(Get(PinnedBuffer<int>::Create(c.num_groups))),
        reported_(Get(PinnedBuffer<Candidate>::Create(num_candidates()))) {
    Fill();
  }

  absl::Status Begin(cudaStream_t stream) const {
    return CudaPrepareInputs(memory_.arrays().state, num_rows(), stream);
  }
  absl::Status Advance(cudaStream_t stream) const {
    const CudaReportRing ring = {headers_.data(),  counts_.data(),
                                 reported_.data(), 1,
                                 c_.num_groups,    num_candidates()};
    return CudaUpdateBeams(memory_.arrays().state, memory_.arrays().candidates,
                           memory_.arrays().num_candidates, ring, c_.num_groups,
                           stream);
  }

 private:
  int num_rows() const { return c_.num_groups * c_.num_slots; }
  int num_candidates() const { return 2 * num_rows(); }

  static CudaStepLimits Limits(const Case& c) {
    CudaStepLimits limits;
    limits.max_rows = c.num_groups * c.num_slots;
    limits.max_tokens = limits.max_rows;
    limits.num_slots = 2 * limits.max_rows;
    // As many positions as all replays together pass.
    limits.table_stride = 2 * kStepsInGraph * (kReplays + 4) / kPageSize;
    limits.max_candidates = 2 * limits.max_rows;
    return limits;
  }

  void Fill() {
    const CudaStepArrays& arrays = memory_.arrays();
    CudaDelta delta(memory_.words());
    std::vector<int> row_groups;
    for (int g = 0; g < c_.num_groups; ++g) {
      const int first = g * c_.num_slots;
      delta.Put(arrays.state.groups + g,
                CudaResidentGroup{first, c_.num_slots, 0, 0, 1});
      delta.Put(arrays.state.selections + g,
                CudaSelectGroup{first, c_.num_slots, 2 * c_.num_slots,
                                2 * first, ScoreDomain::kLogProbs});
      for (int i = 0; i < c_.num_slots; ++i) {
        delta.Put(arrays.state.slots + first + i, first + i);
        delta.Put(arrays.state.sources + first + i, -1);
        row_groups.push_back(g);
      }
      for (int i = 0; i < 2 * c_.num_slots; ++i) {
        delta.Put(arrays.candidates + 2 * first + i,
                  Candidate{i % std::max(c_.num_slots / 2, 1), i + 1, -1.0f});
      }
      delta.Put(arrays.num_candidates + g, 2 * c_.num_slots);
    }
    delta.Put<int>(arrays.state.row_groups, row_groups);
    delta.Put(arrays.state.num_groups, c_.num_groups);
    for (const CudaStagedWrite& segment : delta.segments()) {
      Check(CudaStatus(
          cudaMemcpy(memory_.words() + segment.target,
                     delta.payload().data() + segment.source,
                     segment.count * sizeof(int), cudaMemcpyHostToDevice),
          "cudaMemcpy"));
    }
  }

  const Case c_;
  const CudaStepMemory memory_;
  const PinnedBuffer<CudaReportRing::Header> headers_;
  const PinnedBuffer<int> counts_;
  const PinnedBuffer<Candidate> reported_;
};

template <typename Enqueue>
double MedianMicroseconds(cudaStream_t stream, const Enqueue& enqueue) {
  const CudaGraph graph = Get(CaptureGraph(stream, [&] {
    for (int i = 0; i < kStepsInGraph; ++i) {
      RETURN_IF_ERROR(enqueue());
    }
    return absl::OkStatus();
  }));
  const CudaEvent begin = Get(CudaEvent::Create());
  const CudaEvent end = Get(CudaEvent::Create());
  std::vector<float> times;
  for (int i = 0; i < kReplays; ++i) {
    cudaEventRecord(begin.get(), stream);
    Check(CudaStatus(cudaGraphLaunch(graph.get(), stream), "cudaGraphLaunch"));
    cudaEventRecord(end.get(), stream);
    Check(CudaStatus(cudaStreamSynchronize(stream), "the graph"));
    cudaEventElapsedTime(&times.emplace_back(), begin.get(), end.get());
  }
  return 1000.0 * Median(std::move(times)) / kStepsInGraph;
}

void Run(const Case& c) {
  const CudaStream stream = Get(CudaStream::Create());
  const Batch batch(c);
  const double begin = MedianMicroseconds(
      stream.get(), [&] { return batch.Begin(stream.get()); });
  const double both = MedianMicroseconds(stream.get(), [&]() -> absl::Status {
    RETURN_IF_ERROR(batch.Begin(stream.get()));
    return batch.Advance(stream.get());
  });
  std::printf("%6d x %-5d %10.2f %10.2f\n", c.num_groups, c.num_slots, begin,
              both);
}

struct MoveCase {
  int num_slots;
  int num_pages;  // per table
  int distance;
};

void RunMove(const MoveCase& c) {
  const CudaStream stream = Get(CudaStream::Create());
  CudaStepLimits limits;
  limits.max_rows = limits.max_tokens = c.num_slots;
  limits.num_slots = c.num_slots + c.distance;
  limits.table_stride = c.num_pages;
  const CudaStepMemory memory =
      Get(CudaStepMemory::Create(limits, PageId{0}, kPageSize));
  const double us = MedianMicroseconds(stream.get(), [&] {
    return CudaMoveGroup(memory.arrays().state, c.distance, 0, c.num_slots,
                         stream.get());
  });
  std::printf("%6d x %-5d %10d %10.2f\n", c.num_slots, c.num_pages, c.distance,
              us);
}

}  // namespace
}  // namespace espalier

int main() {
  using namespace espalier;  // NOLINT
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s, us a step\n%6s x %-5s %10s %10s\n", device.name.c_str(),
              "groups", "beams", "begin", "with advance");
  for (const Case& c : {Case{1, 1}, Case{1, 5}, Case{16, 8}, Case{128, 8},
                        Case{1, 512}, Case{1, 5000}}) {
    Run(c);
  }
  std::printf("\nus a move\n%6s x %-5s %10s %10s\n", "slots", "pages",
              "distance", "move");
  for (const MoveCase& c :
       {MoveCase{5, 64, 5}, MoveCase{64, 512, 8}, MoveCase{5000, 512, 1},
        MoveCase{5000, 512, 64}, MoveCase{5000, 512, 5000}}) {
    RunMove(c);
  }
}
