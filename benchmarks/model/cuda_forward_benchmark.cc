// One decode step's forward pass on the device, without selection, of the three
// Llama shapes that people compare: random weights in bfloat16, groups of beams
// that share a prompt, each beam 32 tokens past it, a graph a step.
//
//   cuda_forward_benchmark                   all shapes and cases
//   cuda_forward_benchmark 1b                one shape
//   cuda_forward_benchmark 68m --profile     and where the time goes
//
// Then prompts, each in one call, by the rate of the products' multiplications
// and additions (attention's are not counted).
//
// `limit` is the time in which a plain kernel, in the same run, reads as many
// bytes as the weights have; the embedding table counts only where it is also
// the head.
//
// --profile times each family of kernels alone, as a graph of all its launches
// of a step. Together they take longer than the step, in which a kernel begins
// before the one before it has ended.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "benchmarks/cuda_replays.h"
#include "benchmarks/device_roofline.h"
#include "benchmarks/median.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"
#include "kernels/matmul/cuda_matmul.h"
#include "model/cuda/cuda_random_weights.h"
#include "model/cuda/cuda_transformer.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "tests/model/cuda/cuda_plan_batch.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kOwnTokens = 32;  // per beam, past the prompt

struct Shape {
  std::string_view name;
  int hidden_size, num_layers, num_heads, num_kv_heads, head_dim;
  int intermediate_size, vocab_size;
  bool tied;
};
constexpr Shape kShapes[] = {
    {"68m", 768, 2, 12, 12, 64, 3072, 32000, false},
    {"1b", 2048, 16, 32, 8, 64, 8192, 128256, true},
    {"8b", 4096, 32, 32, 8, 128, 14336, 128256, false},
};

struct Case {
  int num_groups, num_beams, prompt;
};
constexpr int kPrompts[] = {128, 512, 2048};
constexpr Case kCases[] = {
    {5, 1, 128}, {1, 4, 128}, {8, 4, 512}, {1, 8, 8192}, {16, 8, 512}};

TransformerConfig ConfigOf(const Shape& shape) {
  TransformerConfig config;
  config.vocab_size = shape.vocab_size;
  config.hidden_size = shape.hidden_size;
  config.layers.assign(shape.num_layers,
                       {.intermediate_size = shape.intermediate_size});
  config.num_heads = shape.num_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.head_dim = shape.head_dim;
  config.max_context = 16384;
  config.tie_word_embeddings = shape.tied;
  return config;
}

// A decoding step of all beams: each table is the group's prompt pages and then
// the beam's own.
StepPlan PlanOf(const Case& c) {
  StepPlan plan;
  const int prompt_pages = c.prompt / kPageSize;
  const int own_pages = kOwnTokens / kPageSize + 1;
  int next_page = 0;
  for (int g = 0; g < c.num_groups; ++g) {
    const int first_prompt_page = next_page;
    next_page += prompt_pages;
    for (int b = 0; b < c.num_beams; ++b) {
      const int row = g * c.num_beams + b;
      plan.rows.push_back({.sequence = SequenceId{row},
                           .first_token = row,
                           .num_tokens = 1,
                           .first_position = c.prompt + kOwnTokens,
                           .num_logits = 1,
                           .first_logits = row});
      plan.tokens.push_back(100 + 7 * row);
      for (int i = 0; i < prompt_pages; ++i) {
        plan.page_indices.push_back(PageId{first_prompt_page + i});
      }
      for (int i = 0; i < own_pages; ++i) {
        plan.page_indices.push_back(PageId{next_page++});
      }
      plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
    }
  }
  plan.num_logits = static_cast<int>(plan.rows.size());
  return plan;
}

// Returns a plan with one row that feeds a whole prompt and has logits for its
// last token.
StepPlan PromptPlanOf(int num_tokens) {
  StepPlan plan;
  plan.rows.push_back(
      {.sequence = SequenceId{0}, .num_tokens = num_tokens, .num_logits = 1});
  for (int t = 0; t < num_tokens; ++t) plan.tokens.push_back(100 + 7 * t);
  for (int i = 0; i * kPageSize < num_tokens; ++i) {
    plan.page_indices.push_back(PageId{i});
  }
  plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
  plan.num_logits = 1;
  return plan;
}

// Milliseconds of one of many calls, back to back: the median of seven runs.
template <typename Enqueue>
double MedianTime(cudaStream_t stream, const Enqueue& enqueue) {
  const CudaEvent begin = Get(CudaEvent::Create());
  const CudaEvent end = Get(CudaEvent::Create());
  const auto run = [&](int count) {
    cudaEventRecord(begin.get(), stream);
    for (int i = 0; i < count; ++i) enqueue();
    cudaEventRecord(end.get(), stream);
    Check(CudaStatus(cudaStreamSynchronize(stream), "a run"));
    float ms = 0;
    cudaEventElapsedTime(&ms, begin.get(), end.get());
    return ms / count;
  };
  run(3);
  const int count = std::clamp(static_cast<int>(10 / run(3)), 3, 200);
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) times.push_back(run(count));
  return Median(std::move(times));
}

template <typename Enqueue>
double TimeCaptured(cudaStream_t stream, const Enqueue& enqueue) {
  const CudaGraph graph = Get(CaptureGraph(stream, enqueue));
  return MedianTime(stream, [&] { cudaGraphLaunch(graph.get(), stream); });
}

double Bytes(const CudaMatrix& w) {
  return double(w.num_rows) * w.num_cols * NumBytes(w.dtype);
}

// Returns the bytes of weights that a step reads.
double WeightBytes(const CudaTransformerWeights& weights) {
  double bytes = Bytes(weights[MatrixPart::kHead].matrix);
  for (const CudaWeightParts& layer : weights.layers) {
    for (const MatrixPart matrix : kMatrixParts) {
      bytes += Bytes(layer[matrix].matrix);
    }
  }
  return bytes;
}

// Each family of a step's kernels, on buffers of its own.
class Profile {
 public:
  Profile(const CudaTransformerWeights& weights,
          const CudaTransformer& transformer, const CudaDevice& device,
          int num_rows)
      : weights_(weights),
        transformer_(transformer),
        device_(device),
        num_rows_(num_rows),
        matmul_(Get(CudaMatMul::Create(
            device, {.max_rows = num_rows,
                     .max_outputs = 2 * weights.widths.intermediate,
                     .largest_matrix = MaxMatrixWeights(weights)}))) {
    int widest = weights[MatrixPart::kHead].matrix.num_rows;
    for (const MatrixPart matrix : {MatrixPart::kGateUp, MatrixPart::kQkv}) {
      const CudaMatrix& w = weights.layers[0][matrix].matrix;
      widest = std::max({widest, w.num_rows, w.num_cols});
    }
    const size_t size = size_t(num_rows) * widest;
    x_ = Get(DeviceBuffer<float>::Create(size));
    out_ = Get(DeviceBuffer<float>::Create(size));
    for (const auto* buffer : {&x_, &out_}) {
      Check(CudaFillNormal(buffer->data(), DType::kBFloat16, 1,
                           static_cast<int>(size), static_cast<int>(size), 1.0f,
                           /*seed=*/7, nullptr));
    }
    Check(CudaStatus(cudaDeviceSynchronize(), "Profile"));
  }

  void Print(const CudaBatch& batch, cudaStream_t stream) {
    double sum = 0;
    const auto print = [&](const char* name, double ms) {
      std::printf("    %-10s %8.4f ms\n", name, ms);
      sum += ms;
    };
    const auto products = [&](MatrixPart matrix, CudaEpilogue epilogue) {
      return TimeCaptured(stream, [&] {
        for (const CudaWeightParts& layer : weights_.layers) {
          RETURN_IF_ERROR(matmul_->Run(x_.data(), num_rows_,
                                       layer[matrix].matrix, epilogue,
                                       out_.data(), stream));
        }
        return absl::OkStatus();
      });
    };
    print("qkv", products(MatrixPart::kQkv, CudaEpilogue::kStore));
    print("output", products(MatrixPart::kOutput, CudaEpilogue::kAddFloat));
    print("gate_up", products(MatrixPart::kGateUp, CudaEpilogue::kSiluMul));
    print("down", products(MatrixPart::kDown, CudaEpilogue::kAddFloat));
    print("head", TimeCaptured(stream, [&] {
            return matmul_->Run(x_.data(), num_rows_,
                                weights_[MatrixPart::kHead].matrix,
                                CudaEpilogue::kStoreFloat, out_.data(), stream);
          }));
    print("norms", TimeCaptured(stream, [&] { return Norms(stream); }));
    print("rotate",
          TimeCaptured(stream, [&] { return Rotate(batch, stream); }));
    scratch_ = Get(DeviceBuffer<char>::Create(CudaAttentionScratchBytes(
        batch.attention, transformer_.attention_shape())));
    print("attention",
          TimeCaptured(stream, [&] { return Attend(batch, stream); }));
    std::printf("    %-10s %8.4f ms\n", "sum", sum);
  }

 private:
  absl::Status Norms(cudaStream_t stream) {
    const int size = transformer_.config().hidden_size;
    for (const CudaWeightParts& layer : weights_.layers) {
      for (const NormPart norm :
           {NormPart::kAttentionNorm, NormPart::kMlpNorm}) {
        const CudaNormWeights& weights = layer[norm];
        RETURN_IF_ERROR(
            CudaRmsNorm(x_.data(), num_rows_,
                        {weights.weight, size, weights_.widths.hidden, 1e-5f},
                        DType::kBFloat16, out_.data(), stream));
      }
    }
    return absl::OkStatus();
  }

  // A rotary table of anything does: numbers do not change the time.
  absl::Status Rotate(const CudaBatch& batch, cudaStream_t stream) {
    const CudaTokenSlots slots = {batch.positions, batch.token_tables,
                                  batch.attention.tables,
                                  batch.attention.table_stride};
    const TransformerConfig& config = transformer_.config();
    for (int i = 0; i < config.num_layers(); ++i) {
      RETURN_IF_ERROR(CudaRotateAndStore(
          out_.data(), num_rows_, config.num_heads, /*bias=*/nullptr,
          {static_cast<const float*>(weights_[TablePart::kEmbedding].data),
           static_cast<const float*>(weights_[TablePart::kEmbedding].data)},
          slots, transformer_.cache(), i, stream));
    }
    return absl::OkStatus();
  }

  absl::Status Attend(const CudaBatch& batch, cudaStream_t stream) {
    const CudaAttentionShape shape = transformer_.attention_shape();
    const TransformerConfig& config = transformer_.config();
    for (int i = 0; i < config.num_layers(); ++i) {
      RETURN_IF_ERROR(CudaAttention(batch.attention, shape, x_.data(),
                                    config.q_size() + 2 * config.kv_size(),
                                    transformer_.cache(), i, out_.data(),
                                    scratch_.data(), device_, stream));
    }
    return absl::OkStatus();
  }

  const CudaTransformerWeights& weights_;
  const CudaTransformer& transformer_;
  const CudaDevice device_;
  const int num_rows_;
  std::unique_ptr<CudaMatMul> matmul_;
  DeviceBuffer<float> x_;
  DeviceBuffer<float> out_;
  DeviceBuffer<char> scratch_;
};

// Keys and values of zeros would be read no slower, but multiplied faster.
void FillCache(const CudaKvCache& cache) {
  const int stride = static_cast<int>(cache.page_stride());
  Check(CudaFillNormal(cache.data, cache.dtype,
                       cache.num_layers * cache.num_pages, stride, stride, 1.0f,
                       /*seed=*/3, nullptr));
  Check(CudaStatus(cudaDeviceSynchronize(), "FillCache"));
}

void RunShape(const Shape& shape, bool profile, double read_rate,
              const CudaDevice& device, cudaStream_t stream) {
  const TransformerConfig config = ConfigOf(shape);
  const CudaTransformerOptions options = {.page_size = kPageSize,
                                          .kv_cache_bytes = int64_t{4} << 30,
                                          .dtype = DType::kBFloat16,
                                          .max_tokens = 2048};
  const auto transformer =
      Get(CudaTransformer::Random(config, options, device));
  FillCache(transformer->cache());
  // A separate copy, for the profile and to count bytes.
  const CudaTransformerWeights weights =
      Get(RandomCudaTransformerWeights(config, {.dtype = options.dtype}));
  const double limit = WeightBytes(weights) / read_rate * 1e3;
  const auto time = [&](const StepPlan& plan, const CudaBatch& batch) {
    const auto logits = Get(DeviceBuffer<float>::Create(
        size_t(plan.num_logits) * shape.vocab_size));
    return TimeCaptured(stream, [&] {
      return transformer->Enqueue(batch, logits.data(), stream);
    });
  };
  for (const Case& c : kCases) {
    const StepPlan plan = PlanOf(c);
    const auto batch =
        Get(testing::CudaPlanBatch::Create(plan, *transformer, device, {}));
    const double ms = time(plan, batch.view());
    std::printf("%-5s %3d x %d %6d  %9.4f  %9.4f  %5.2f\n", shape.name.data(),
                c.num_groups, c.num_beams, c.prompt, ms, limit, limit / ms);
    if (profile) {
      Profile(weights, *transformer, device, plan.num_logits)
          .Print(batch.view(), stream);
    }
    std::fflush(stdout);
  }
  const double layer_bytes =
      WeightBytes(weights) - Bytes(weights[MatrixPart::kHead].matrix);
  for (const int num_tokens : kPrompts) {
    const StepPlan plan = PromptPlanOf(num_tokens);
    const auto batch =
        Get(testing::CudaPlanBatch::Create(plan, *transformer, device, {}));
    const double ms = time(plan, batch.view());
    // Two bytes and two operations a weight.
    std::printf("%-5s prompt of %4d  %9.4f  %9.0f TFLOP/s\n", shape.name.data(),
                num_tokens, ms, layer_bytes * num_tokens / ms / 1e9);
  }
}

void Main(const std::vector<std::string_view>& args) {
  const auto has = [&](std::string_view arg) {
    return std::find(args.begin(), args.end(), arg) != args.end();
  };
  const bool profile = has("--profile");
  const bool all = args.size() == (profile ? 1 : 0);
  const CudaDevice device = Get(CudaDevice::Open(0));
  const CudaStream stream = Get(CudaStream::Create());
  const double read_rate = Get(MeasureRates(device)).bytes_per_s;
  std::printf("%s, reads %.2f TB/s\n", device.name.c_str(), read_rate / 1e12);
  std::printf("shape groups x beams, prompt  ms/step   limit ms  limit/ms\n");
  for (const Shape& shape : kShapes) {
    if (all || has(shape.name)) {
      RunShape(shape, profile, read_rate, device, stream.get());
    }
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Main({argv + 1, argv + argc});
  return 0;
}
