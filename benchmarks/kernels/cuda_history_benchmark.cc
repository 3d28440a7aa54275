// Making edits of histories on a GPU: a repetition penalty and bans of n-grams
// of three tokens.
//
//   cuda_history_benchmark
//
// Prints microseconds per call, the median over replays of a graph of calls.
// Each call has rows, pages and lists of its own, so that none is in a cache.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "base/cuda.h"
#include "benchmarks/cuda_replays.h"
#include "kernels/resident/cuda_history_edits.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
// More than the second-level cache: so much is touched before anything again.
constexpr int64_t kTouchedBytes = 200 << 20;

struct Case {
  int num_rows;
  int num_tokens;  // per history
  int vocab_size;
};

// The rows of `num_calls` calls.
class Calls {
 public:
  explicit Calls(const Case& c) : c_(c) {
    const int64_t bytes =
        int64_t{c.num_rows} * c.num_tokens * (sizeof(int) + sizeof(TokenEdit));
    num_calls_ =
        static_cast<int>(std::clamp<int64_t>(kTouchedBytes / bytes, 8, 256));
    const int num_rows = num_calls_ * c.num_rows;
    std::mt19937 random(1);
    std::vector<int> pages(int64_t{num_rows} * pages_per_row());
    std::iota(pages.begin(), pages.end(), 0);
    std::ranges::shuffle(pages, random);
    std::vector<int> tokens(pages.size() * kPageSize);
    for (int& token : tokens) token = random() % c.vocab_size;
    std::vector<CudaEditRow> rows(num_rows);
    for (int r = 0; r < num_rows; ++r) {
      rows[r] = {.params = 0, .begin = r * c.num_tokens};
    }
    std::vector<int> each(num_rows);
    std::iota(each.begin(), each.end(), 0);
    tables_ = Get(Upload(pages));
    page_tokens_ = Get(Upload(tokens));
    rows_ = Get(Upload(rows));
    each_ = Get(Upload(each));
    params_ = Get(Upload(std::vector<CudaEditParams>{
        {.repetition_penalty = 1.2f, .no_repeat_ngram_size = 3}}));
    cums_ = Get(Upload(std::vector<float>(num_rows, -1.0f)));
    positions_ = Get(Upload(std::vector<int>(num_rows, c.num_tokens - 1)));
    row_edits_ = Get(DeviceBuffer<CudaRowEdits>::Create(num_rows));
    edits_ =
        Get(DeviceBuffer<TokenEdit>::Create(int64_t{num_rows} * c.num_tokens));
  }

  int num_calls() const { return num_calls_; }
  absl::Status Enqueue(int call, cudaStream_t stream) const {
    const int64_t first = int64_t{call} * c_.num_rows;
    return CudaCollectEdits(
        {.histories = {.num_rows = c_.num_rows,
                       .vocab_size = c_.vocab_size,
                       .table_stride = pages_per_row(),
                       .page_size = kPageSize,
                       .cum_log_probs = cums_.data(),
                       .logits_tokens = each_.data() + first,
                       .positions = positions_.data(),
                       .token_tables = each_.data(),
                       .tables = tables_.data(),
                       .page_tokens = page_tokens_.data()},
         .rows = rows_.data() + first,
         .params = params_.data()},
        row_edits_.data() + first, edits_.data(), stream);
  }

 private:
  int pages_per_row() const {
    return (c_.num_tokens + kPageSize - 1) / kPageSize;
  }

  const Case c_;
  int num_calls_ = 0;
  DeviceBuffer<CudaEditRow> rows_;
  DeviceBuffer<CudaEditParams> params_;
  DeviceBuffer<float> cums_;
  DeviceBuffer<int> each_;
  DeviceBuffer<int> positions_;
  DeviceBuffer<int> tables_;
  DeviceBuffer<int> page_tokens_;
  DeviceBuffer<CudaRowEdits> row_edits_;
  DeviceBuffer<TokenEdit> edits_;
};

double Microseconds(const Calls& calls, cudaStream_t stream) {
  const CudaGraph graph = Get(CaptureGraph(stream, [&] {
    for (int i = 0; i < calls.num_calls(); ++i) {
      RETURN_IF_ERROR(calls.Enqueue(i, stream));
    }
    return absl::OkStatus();
  }));
  return Get(MedianMicroseconds(graph, calls.num_calls(), stream));
}

}  // namespace
}  // namespace espalier

int main() {
  using namespace espalier;  // NOLINT
  const CudaDevice device = Get(CudaDevice::Open(0));
  Check(PrepareCudaCollectEdits());
  const CudaStream stream = Get(CudaStream::Create());
  std::printf("%s, us a call\n%6s %8s %8s\n", device.name.c_str(), "rows",
              "tokens", "vocab");
  for (const Case& c :
       {Case{4, 200, 32000}, Case{64, 200, 32000}, Case{64, 200, 128256},
        Case{64, 2000, 128256}, Case{512, 200, 32000}, Case{512, 2000, 128256},
        Case{4, 16000, 128256}}) {
    std::printf("%6d %8d %8d %8.2f\n", c.num_rows, c.num_tokens, c.vocab_size,
                Microseconds(Calls(c), stream.get()));
  }
}
