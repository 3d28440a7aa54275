// Loading and decode steps of a model of 1 billion parameters in bf16, 16
// layers of it, against what reading its bytes takes.
//
//   weights_benchmark DIR [THREADS]
//
// DIR gets the model, of random weights (2.5 GB), if there is none yet. Times
// are the best of several, of the wall clock; in the row of a step its bytes
// are all matrices once.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/cpu_count.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "kernels/panel_memory.h"
#include "model/transformer_model.h"

namespace espalier {
namespace {

constexpr int kHidden = 2048;
constexpr int kIntermediate = 8192;
constexpr int kLayers = 16;
constexpr int kVocabulary = 128256;
constexpr int kKeyValues = 512;  // 8 heads of 64

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
  "vocab_size": 128256, "max_position_embeddings": 4096, "hidden_act": "silu",
  "rms_norm_eps": 1e-05, "tie_word_embeddings": true, "eos_token_id": 2,
  "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}
})";

struct Tensor {
  std::string name;
  int num_rows;
  int num_cols;  // 0: a norm
};

std::vector<Tensor> Tensors() {
  std::vector<Tensor> tensors = {
      {"model.embed_tokens.weight", kVocabulary, kHidden},
      {"model.norm.weight", kHidden, 0}};
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const Tensor parts[] = {{"input_layernorm", kHidden, 0},
                            {"post_attention_layernorm", kHidden, 0},
                            {"self_attn.q_proj", kHidden, kHidden},
                            {"self_attn.k_proj", kKeyValues, kHidden},
                            {"self_attn.v_proj", kKeyValues, kHidden},
                            {"self_attn.o_proj", kHidden, kHidden},
                            {"mlp.gate_proj", kIntermediate, kHidden},
                            {"mlp.up_proj", kIntermediate, kHidden},
                            {"mlp.down_proj", kHidden, kIntermediate}};
    for (const Tensor& part : parts) {
      tensors.push_back(
          {layer + part.name + ".weight", part.num_rows, part.num_cols});
    }
  }
  return tensors;
}

// Numbers of either sign around 2^-7, or ones.
std::vector<uint16_t> Numbers(const Tensor& tensor, uint64_t* state) {
  std::vector<uint16_t> numbers(size_t(tensor.num_rows) *
                                std::max(tensor.num_cols, 1));
  for (uint16_t& number : numbers) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    number = tensor.num_cols == 0
                 ? 0x3F80
                 : static_cast<uint16_t>((*state >> 48 & 0x807F) | 0x3C00);
  }
  return numbers;
}

void MakeModel(const std::string& directory) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << kConfig;
  std::string header = "{";
  uint64_t offset = 0;
  for (const Tensor& t : Tensors()) {
    const uint64_t end =
        offset + uint64_t{2} * t.num_rows * std::max(t.num_cols, 1);
    header += header.size() > 1 ? ", \"" : "\"";
    header += t.name + R"(": {"dtype": "BF16", "shape": [)" +
              std::to_string(t.num_rows) +
              (t.num_cols > 0 ? ", " + std::to_string(t.num_cols) : "") +
              R"(], "data_offsets": [)" + std::to_string(offset) + ", " +
              std::to_string(end) + "]}";
    offset = end;
  }
  header += "}";
  std::ofstream file(directory + "/model.safetensors", std::ios::binary);
  const uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file.write(header.data(), static_cast<std::streamsize>(size));
  uint64_t state = 1;
  for (const Tensor& t : Tensors()) {
    const std::vector<uint16_t> numbers = Numbers(t, &state);
    file.write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(2 * numbers.size()));
  }
}

// The shortest of some repeats, in seconds.
struct Best {
  double wall = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();  // of each thread
};

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

Best Measure(int repeats, const ThreadPool& pool,
             const std::function<void()>& body) {
  Best best;
  for (int i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    const double cpu = CpuSeconds();
    body();
    best.cpu = std::min(best.cpu, (CpuSeconds() - cpu) / pool.num_threads());
    best.wall = std::min(best.wall, absl::ToDoubleSeconds(watch.Elapsed()));
  }
  return best;
}

// "12.3 (14.5)"
std::string Rates(double bytes, const Best& best) {
  return absl::StrFormat("%.1f (%.1f)", 1e-9 * bytes / best.wall,
                         1e-9 * bytes / best.cpu);
}

// All of it, by all threads; the result keeps the reads from being left out.
uint64_t Sum(std::span<const std::byte> bytes, ThreadPool& pool) {
  constexpr int kPieces = 64;
  std::vector<uint64_t> sums(kPieces);
  const size_t num_words = bytes.size() / sizeof(uint64_t) / kPieces / 8 * 8;
  pool.ParallelFor(kPieces, [&](int piece) {
    const auto* words =
        reinterpret_cast<const uint64_t*>(bytes.data()) + piece * num_words;
    uint64_t lanes[8] = {};
    for (size_t i = 0; i < num_words; i += 8) {
      __builtin_prefetch(words + i + 512);
      for (int j = 0; j < 8; ++j) lanes[j] += words[i + j];
    }
    for (const uint64_t lane : lanes) sums[piece] += lane;
  });
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

std::unique_ptr<TransformerModel> LoadModel(const std::string& directory,
                                            std::shared_ptr<ThreadPool> pool,
                                            WeightFormat weights) {
  auto model = TransformerModel::Load(
      directory, {.kv_cache_bytes = 64 << 20, .weights = weights}, pool);
  if (model.ok()) return *std::move(model);
  std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
  std::exit(1);
}

// `num_rows` sequences that feed a token each, at position 64.
StepPlan MakePlan(int num_rows) {
  constexpr int kPages = 5;
  StepPlan plan;
  for (int r = 0; r < num_rows; ++r) {
    plan.rows.push_back({.sequence = SequenceId{r},
                         .first_token = r,
                         .num_tokens = 1,
                         .first_position = 64,
                         .num_logits = 1,
                         .first_logits = r});
    plan.tokens.push_back(10 + r);
    for (int i = 0; i < kPages; ++i) {
      plan.page_indices.push_back(PageId{r * kPages + i});
    }
    plan.page_indptr.push_back((r + 1) * kPages);
  }
  plan.num_logits = num_rows;
  return plan;
}

// Bytes of the matrices that a step reads.
double StepBytes(WeightFormat weights) {
  double head = 0, layers = 0;
  for (const Tensor& t : Tensors()) {
    const double count = double(t.num_rows) * t.num_cols;
    (t.num_rows == kVocabulary ? head : layers) += count;
  }
  const double int8 = 1 + 2.0 / QuantGroupSize(WeightFormat::kInt8);
  const double int4 = 0.5 + 2.0 / QuantGroupSize(WeightFormat::kInt4);
  switch (weights) {
    case WeightFormat::kInt8:
      return (head + layers) * int8;
    case WeightFormat::kInt4:
      return head * int8 + layers * int4;
    default:
      return (head + layers) * 2;
  }
}

void RunSteps(TransformerModel& model, double bytes, const Best& reading,
              double read_bytes, const ThreadPool& pool) {
  for (const int num_rows : {1, 4, 8}) {
    const StepPlan plan = MakePlan(num_rows);
    std::vector<float> logits(size_t(num_rows) * kVocabulary);
    const Best step = Measure(20, pool, [&] {
      if (!model.Forward(plan, logits).ok()) std::abort();
    });
    const double share = bytes / read_bytes * 100;
    absl::PrintF(
        "  %d rows: %.1f (%.1f) ms, %s GB/s, %.0f (%.0f)%% of reading\n",
        num_rows, 1e3 * step.wall, 1e3 * step.cpu, Rates(bytes, step),
        share * reading.wall / step.wall, share * reading.cpu / step.cpu);
  }
}

void Run(const std::string& directory, int num_threads) {
  const std::string path = directory + "/model.safetensors";
  if (!std::filesystem::exists(path)) MakeModel(directory);
  const auto pool = ThreadPool::Create(num_threads).value();
  const auto file_bytes = static_cast<double>(std::filesystem::file_size(path));
  volatile uint64_t sink = 0;
  const Best mapped = Measure(5, *pool, [&] {
    const MappedFile file = MappedFile::Open(path).value();
    sink = sink + Sum(file.bytes(), *pool);
  });
  constexpr size_t kNumBytes = size_t{1} << 30;
  PanelMemory memory(kNumBytes);  // where weights are
  std::fill_n(memory.data(), kNumBytes, std::byte{1});
  const Best reading = Measure(20, *pool, [&] {
    sink = sink + Sum(std::span(memory.data(), kNumBytes), *pool);
  });
  absl::PrintF("%d threads; GB/s of the file, mapped: %s; of memory: %s\n",
               num_threads, Rates(file_bytes, mapped),
               Rates(kNumBytes, reading));
  const std::pair<const char*, WeightFormat> formats[] = {
      {"stored", WeightFormat::kAsStored},
      {"int8", WeightFormat::kInt8},
      {"int4", WeightFormat::kInt4}};
  for (const auto& [name, weights] : formats) {
    std::unique_ptr<TransformerModel> model;
    const Best load = Measure(5, *pool, [&] {
      model = nullptr;
      model = LoadModel(directory, pool, weights);
    });
    absl::PrintF("%s: loads %s GB/s of the file\n", name,
                 Rates(file_bytes, load));
    RunSteps(*model, StepBytes(weights), reading, kNumBytes, *pool);
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: weights_benchmark DIR [THREADS]\n");
    return 2;
  }
  espalier::Run(argv[1],
                argc > 2 ? std::atoi(argv[2]) : espalier::NumUsableCpus());
}
