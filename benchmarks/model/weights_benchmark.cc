// Loading and decode steps of a model of 1, 3 or 8 billion parameters in bf16,
// in the shape of Llama 3, compared with the time to read its bytes.
//
//   weights_benchmark DIR [THREADS [1b|3b|8b]]
//
// The model, of random weights (2.5, 6.4 or 16 GB), is written to DIR, if that
// has none yet. Times are the best of several, of the wall clock and, in
// brackets, of a thread's CPU; in the row of a step its bytes are all matrices
// once. "Cold" is a file that is not in the page cache: it is read in blocks of
// 8 MiB, as many at a time as there are threads, and then loaded. "Copied"
// copies the mapped file into allocated memory, which the system has to clear,
// as for any loader. Loading of 3b and 8b is measured without quantising.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/cpu_count.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "kernels/matmul/matmul_tile.h"
#include "kernels/panel_memory.h"
#include "model/transformer_model.h"

namespace espalier {
namespace {

constexpr int kVocabulary = 128256;

struct Shape {
  std::string_view name;
  int hidden;
  int intermediate;
  int num_layers;
  int num_heads;
  int head_dim;
  int num_kv_heads;
  bool has_tied_head;

  int kv_size() const { return num_kv_heads * head_dim; }
  bool is_large() const { return num_layers > 16; }
};

constexpr Shape kShapes[] = {{"1b", 2048, 8192, 16, 32, 64, 8, true},
                             {"3b", 3072, 8192, 28, 24, 128, 8, true},
                             {"8b", 4096, 14336, 32, 32, 128, 8, false}};

std::string ConfigOf(const Shape& shape) {
  return absl::StrFormat(
      R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
  "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d,
  "vocab_size": %d, "max_position_embeddings": 4096, "hidden_act": "silu",
  "rms_norm_eps": 1e-05, "tie_word_embeddings": %s, "eos_token_id": 2,
  "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}
})",
      shape.hidden, shape.intermediate, shape.num_layers, shape.num_heads,
      shape.num_kv_heads, shape.head_dim, kVocabulary,
      shape.has_tied_head ? "true" : "false");
}

struct Tensor {
  std::string name;
  int num_rows;
  int num_cols;  // 0: a norm
};

std::vector<Tensor> TensorsOf(const Shape& shape) {
  const int hidden = shape.hidden;
  const int intermediate = shape.intermediate;
  const int query_size = shape.num_heads * shape.head_dim;
  std::vector<Tensor> tensors = {
      {"model.embed_tokens.weight", kVocabulary, hidden},
      {"model.norm.weight", hidden, 0}};
  if (!shape.has_tied_head) {
    tensors.push_back({"lm_head.weight", kVocabulary, hidden});
  }
  for (int i = 0; i < shape.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const Tensor parts[] = {{"input_layernorm", hidden, 0},
                            {"post_attention_layernorm", hidden, 0},
                            {"self_attn.q_proj", query_size, hidden},
                            {"self_attn.k_proj", shape.kv_size(), hidden},
                            {"self_attn.v_proj", shape.kv_size(), hidden},
                            {"self_attn.o_proj", hidden, query_size},
                            {"mlp.gate_proj", intermediate, hidden},
                            {"mlp.up_proj", intermediate, hidden},
                            {"mlp.down_proj", hidden, intermediate}};
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

void MakeModel(const std::string& directory, const Shape& shape) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << ConfigOf(shape);
  std::string header = "{";
  uint64_t offset = 0;
  for (const Tensor& t : TensorsOf(shape)) {
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
  for (const Tensor& t : TensorsOf(shape)) {
    const std::vector<uint16_t> numbers = Numbers(t, &state);
    file.write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(2 * numbers.size()));
  }
}

// The shortest of some repeats, in seconds.
struct Best {
  double wall = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();  // per thread

  void Take(const Best& other) {
    wall = std::min(wall, other.wall);
    cpu = std::min(cpu, other.cpu);
  }
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

// All of it, by all threads, fetched ahead as weights are; the result keeps the
// reads from being left out.
uint64_t Sum(std::span<const std::byte> bytes, ThreadPool& pool) {
  constexpr int kPieces = 64;
  std::vector<uint64_t> sums(kPieces);
  const size_t num_words = bytes.size() / sizeof(uint64_t) / kPieces / 8 * 8;
  pool.ParallelFor(kPieces, [&](int piece) {
    const auto* words =
        reinterpret_cast<const uint64_t*>(bytes.data()) + piece * num_words;
    uint64_t lanes[8] = {};
    for (size_t i = 0; i < num_words; i += 8) {
      PrefetchNear(words + i, kNearBytes);
      PrefetchFar(words + i + 2048);
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
      directory, {.kv_cache_bytes = 256 << 20, .weights = weights}, pool);
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
double StepBytes(const Shape& shape, WeightFormat weights) {
  const double head = double(kVocabulary) * shape.hidden;
  double layers = 0;
  for (const Tensor& t : TensorsOf(shape)) {
    if (t.num_rows != kVocabulary) layers += double(t.num_rows) * t.num_cols;
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
              double read_bytes, int num_repeats, const ThreadPool& pool) {
  for (const int num_rows : {1, 4, 8}) {
    const StepPlan plan = MakePlan(num_rows);
    std::vector<float> logits(size_t(num_rows) * kVocabulary);
    const Best step = Measure(num_repeats, pool, [&] {
      if (!model.Forward(plan, logits).ok()) std::abort();
    });
    const double share = bytes / read_bytes * 100;
    absl::PrintF(
        "  %d rows: %.1f (%.1f) ms, %s GB/s, %.0f (%.0f)%% of reading\n",
        num_rows, 1e3 * step.wall, 1e3 * step.cpu, Rates(bytes, step),
        share * reading.wall / step.wall, share * reading.cpu / step.cpu);
  }
}

// Takes the file out of the page cache.
void Evict(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  if (file < 0 || fsync(file) != 0 ||
      posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
  close(file);
}

// The whole file by read calls, through buffers of their own.
void ReadBlocks(const std::string& path, int64_t num_bytes, ThreadPool& pool) {
  constexpr int64_t kBlock = int64_t{8} << 20;
  const int file = open(path.c_str(), O_RDONLY);
  std::vector<std::vector<char>> buffers(pool.num_threads(),
                                         std::vector<char>(kBlock));
  std::atomic<int64_t> next = 0;
  pool.ParallelFor(pool.num_threads(), [&](int i) {
    for (int64_t at; (at = next.fetch_add(kBlock)) < num_bytes;) {
      if (pread(file, buffers[i].data(), kBlock, at) < 0) std::abort();
    }
  });
  close(file);
}

// The whole mapped file into memory like that of weights, a piece at a time.
void CopyToMemory(const std::string& path, ThreadPool& pool) {
  constexpr size_t kPiece = size_t{64} << 20;
  constexpr size_t kPart = size_t{1} << 20;
  const MappedFile file = MappedFile::Open(path).value();
  for (size_t at = 0; at + kPiece <= file.bytes().size(); at += kPiece) {
    const std::span<const std::byte> piece = file.bytes().subspan(at, kPiece);
    PanelMemory memory(kPiece);
    pool.ParallelFor(kPiece / kPart, [&](int i) {
      std::memcpy(memory.data() + i * kPart, piece.data() + i * kPart, kPart);
    });
    MappedFile::DropPages(piece);
  }
}

void RunCold(const std::string& directory, const std::string& path,
             const std::shared_ptr<ThreadPool>& pool) {
  constexpr int kRepeats = 2;
  const auto num_bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  Best read, load;
  std::unique_ptr<TransformerModel> model;
  for (int i = 0; i < kRepeats; ++i) {
    model = nullptr;
    Evict(path);
    read.Take(Measure(1, *pool, [&] { ReadBlocks(path, num_bytes, *pool); }));
    Evict(path);
    load.Take(Measure(1, *pool, [&] {
      model = LoadModel(directory, pool, WeightFormat::kAsStored);
    }));
  }
  const auto bytes = static_cast<double>(num_bytes);
  absl::PrintF("cold: reads %s GB/s, loads %s GB/s, %.0f%%\n",
               Rates(bytes, read), Rates(bytes, load),
               100 * read.wall / load.wall);
}

void Run(const std::string& directory, int num_threads, const Shape& shape) {
  const std::string path = directory + "/model.safetensors";
  if (!std::filesystem::exists(path)) MakeModel(directory, shape);
  const auto pool = ThreadPool::Create(num_threads).value();
  const auto file_bytes = static_cast<double>(std::filesystem::file_size(path));
  RunCold(directory, path, pool);
  volatile uint64_t sink = 0;
  const int num_repeats = shape.is_large() ? 2 : 5;
  const Best mapped = Measure(num_repeats, *pool, [&] {
    const MappedFile file = MappedFile::Open(path).value();
    sink = sink + Sum(file.bytes(), *pool);
  });
  const Best read = Measure(num_repeats, *pool, [&] {
    ReadBlocks(path, static_cast<int64_t>(file_bytes), *pool);
  });
  const Best copied =
      Measure(num_repeats, *pool, [&] { CopyToMemory(path, *pool); });
  constexpr size_t kNumBytes = size_t{1} << 30;
  PanelMemory memory(kNumBytes);  // where weights are
  std::fill_n(memory.data(), kNumBytes, std::byte{1});
  const Best reading = Measure(20, *pool, [&] {
    sink = sink + Sum(std::span(memory.data(), kNumBytes), *pool);
  });
  absl::PrintF(
      "%d threads; GB/s of the file, mapped: %s, read: %s, copied: %s; of "
      "memory: %s\n",
      num_threads, Rates(file_bytes, mapped), Rates(file_bytes, read),
      Rates(file_bytes, copied), Rates(kNumBytes, reading));
  const std::pair<const char*, WeightFormat> formats[] = {
      {"stored", WeightFormat::kAsStored},
      {"int8", WeightFormat::kInt8},
      {"int4", WeightFormat::kInt4}};
  for (const auto& [name, weights] : formats) {
    if (shape.is_large() && weights != WeightFormat::kAsStored) break;
    std::unique_ptr<TransformerModel> model;
    const Best load = Measure(num_repeats, *pool, [&] {
      model = nullptr;
      model = LoadModel(directory, pool, weights);
    });
    absl::PrintF("%s: loads %s GB/s of the file\n", name,
                 Rates(file_bytes, load));
    RunSteps(*model, StepBytes(shape, weights), reading, kNumBytes,
             shape.is_large() ? 5 : 20, *pool);
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  const std::string_view name = argc > 3 ? argv[3] : "1b";
  const auto* const shape =
      std::ranges::find(espalier::kShapes, name, &espalier::Shape::name);
  if (argc < 2 || argc > 4 || shape == std::end(espalier::kShapes)) {
    std::fprintf(stderr, "usage: weights_benchmark DIR [THREADS [1b|3b|8b]]\n");
    return 2;
  }
  espalier::Run(argv[1],
                argc > 2 ? std::atoi(argv[2]) : espalier::NumUsableCpus(),
                *shape);
}
