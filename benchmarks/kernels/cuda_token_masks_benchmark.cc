// Making token masks on a GPU, for states in which most tokens are legal, as
// within a string, and for states in which few are, as within a number. Tokens
// are random words of up to 11 letters, and one in twenty of up to 3 digits.
//
//   cuda_token_masks_benchmark
//
// Prints microseconds per call, the median over replays of a graph of calls.
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "benchmarks/cuda_replays.h"
#include "constrain/regex_language.h"
#include "constrain/token_constraint.h"
#include "kernels/constrain/cuda_constraint_tables.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

constexpr int kMaxStates = 256;
constexpr int kNumCalls = 32;

std::vector<std::string> RandomTokens(int vocab_size) {
  std::mt19937 random(1);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  while (static_cast<int>(tokens.size()) < vocab_size) {
    const bool is_number = random() % 20 == 0;
    std::string& token = tokens.emplace_back();
    const int length = is_number ? 1 + random() % 3 : 2 + random() % 10;
    for (int i = 0; i < length; ++i) {
      token += static_cast<char>(is_number ? '0' + random() % 10
                                           : 'a' + random() % 26);
    }
  }
  return tokens;
}

// The states of texts of one pattern, one after the other.
class States {
 public:
  States(const char* pattern, int vocab_size) : vocab_size_(vocab_size) {
    const TokenConstraint constraint = Get(TokenConstraint::Make(
        std::make_shared<const ByteAutomaton>(Get(CompileRegex(pattern))),
        std::make_shared<const TokenVocabulary>(RandomTokens(vocab_size))));
    const ConstraintTables tables = constraint.tables();
    constraint_ = Get(CudaConstraintTables::Create(
        tables,
        std::make_shared<const CudaTokenTexts>(
            Get(CudaTokenTexts::Create(tables.inside, vocab_size))),
        nullptr));
    std::vector<CudaMaskJob> jobs;
    for (int s = 0; s < kMaxStates; ++s) {
      jobs.push_back({.state = 1 + s, .room = 1 << 20, .mask = s});
    }
    constraints_ =
        Get(Upload(std::vector<CudaConstraint>{constraint_.constraint()}));
    jobs_ = Get(Upload(jobs));
    const size_t num_words = size_t{kMaxStates} * NumMaskWords(vocab_size);
    masks_ = Get(DeviceBuffer<uint32_t>::Create(num_words));
    continuing_ = Get(DeviceBuffer<uint32_t>::Create(num_words));
  }

  double Microseconds(int num_states, const CudaDevice& device,
                      cudaStream_t stream) const {
    const auto cache =
        Get(Upload(std::vector<CudaMaskCache>{{.num_jobs = num_states}}));
    const CudaGraph graph = Get(CaptureGraph(stream, [&] {
      for (int i = 0; i < kNumCalls; ++i) {
        RETURN_IF_ERROR(CudaMakeTokenMasks({.vocab_size = vocab_size_,
                                            .num_rows = kMaxStates / 2,
                                            .constraints = constraints_.data(),
                                            .cache = cache.data(),
                                            .jobs = jobs_.data()},
                                           {masks_.data(), continuing_.data()},
                                           device, stream));
      }
      return absl::OkStatus();
    }));
    return Get(MedianMicroseconds(graph, kNumCalls, stream));
  }

 private:
  const int vocab_size_;
  CudaConstraintTables constraint_;
  DeviceBuffer<CudaConstraint> constraints_;
  DeviceBuffer<CudaMaskJob> jobs_;
  DeviceBuffer<uint32_t> masks_;
  DeviceBuffer<uint32_t> continuing_;
};

}  // namespace
}  // namespace espalier

int main() {
  using namespace espalier;  // NOLINT
  const CudaDevice device = Get(CudaDevice::Open(0));
  const CudaStream stream = Get(CudaStream::Create());
  std::printf("%s, us a call\n%8s %7s %8s %8s\n", device.name.c_str(), "vocab",
              "states", "letters", "digits");
  for (const int vocab_size : {32000, 128256}) {
    const States letters("[a-z]{300}", vocab_size);
    const States digits("[0-9]{300}", vocab_size);
    for (const int num_states : {0, 1, 4, 16, 64, 128, 256}) {
      std::printf("%8d %7d %8.2f %8.2f\n", vocab_size, num_states,
                  letters.Microseconds(num_states, device, stream.get()),
                  digits.Microseconds(num_states, device, stream.get()));
    }
  }
  return 0;
}
