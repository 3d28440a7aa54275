// The whole decode step on a GPU, as the engine runs it: forward pass,
// selection and bookkeeping, with plans in flight. Weights are random, so that
// any shape can be measured.
//
//   cuda_step_benchmark [--new-tokens N] [--torch FILE] [--processors]
//                       [--constraint lines|arrays] [--fp8] CASE...
//   cuda_step_benchmark 8b:8x4/512      8 requests, 4 beams, 512 prompt tokens
//   cuda_step_benchmark 8b:64s1/512     64 requests, a sample each
//
// Models: 68m, 0.6b, 1b, 8b, and of other families mistral-7b, gemma2-2b,
// gemma3-1b, gpt2, and whisper-base, -large (large-v3) and -turbo, whose
// prompts are 1,500 positions of random features. Prompts are random, no token
// ends a sequence, all requests come at once; the first of two runs warms up.
// With --processors all have a repetition penalty and repeat no n-gram of three
// tokens. With
// --constraint their outputs are lines of JSON objects, by a regular
// expression, or nested arrays, by a schema that recurs, in the tokens of a
// random vocabulary (benchmarks/executor/cuda/random_tokenizer.h). With --fp8
// each is measured with layers' weights of e4m3, too. Prints a line of a
// markdown table a case:
//
//   ms/step   from one step's end to the next's, on average over the steps in
//             which all beams of all requests decode and no request joins;
//             inf without two of these, where requests wait for the host
//   busy      from its first kernel to its last, by the device's clock
//   gap       the median time in which the device waited for the next step
//   host      the engine's thread: writing a plan and applying an answer
//   limit     what the step has to read, at the rate that a plain kernel
//   reached
//             in this very run, or to multiply, at that of a large product:
//             whichever takes longer. Prompts count once a request, generated
//             tokens for each beam
//   source    with an encoder: the time in which it reads a source, up to eight
//             in a call, and stores the keys and values of cross-attention
//   torch     what benchmarks/peers/torch_graph.py wrote into FILE
//   total     the whole run, prompts included
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/ceil_div.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "batcher/engine.h"
#include "benchmarks/device_roofline.h"
#include "benchmarks/executor/cuda/decode_case.h"
#include "benchmarks/executor/cuda/random_tokenizer.h"
#include "benchmarks/executor/cuda/wrapped_executor.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/step/cuda_source_reader.h"
#include "model/cuda/cuda_transformer.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;

// Records the ends of steps in which every row is a decoding beam.
class StepClock : public WrappedExecutor {
 public:
  StepClock(std::shared_ptr<StepExecutor> steps, int num_rows)
      : WrappedExecutor(std::move(steps)), num_rows_(num_rows) {}

  void Execute(StepPlan plan, Done done) override {
    const bool full = IsFull(plan);
    steps().Execute(std::move(plan), [this, full, done = std::move(done)](
                                         absl::StatusOr<StepResult> result) {
      if (full && result.ok()) Note(*result);
      done(std::move(result));
    });
  }

  int num_steps() const { return static_cast<int>(ends_.size()) - 1; }
  absl::Duration MeanStep() const {
    if (num_steps() < 1) return absl::InfiniteDuration();
    return absl::FromChrono(ends_.back() - ends_.front()) / num_steps();
  }
  absl::Duration MeanBusy() const {
    return ends_.empty() ? absl::InfiniteDuration() : busy_ / ends_.size();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool IsFull(const StepPlan& plan) const {
    size_t num_rows = plan.rows.size();
    for (const GroupContinuation& group : plan.continuations) {
      num_rows += group.tail_pages.size();
    }
    return num_rows == num_rows_ && plan.tokens.size() == plan.rows.size();
  }
  void Note(const StepResult& result) {
    ends_.push_back(Clock::now());
    busy_ += result.forward_time + result.select_time;
  }

  const size_t num_rows_;
  std::vector<Clock::time_point> ends_;
  absl::Duration busy_;
};

struct Measured {
  absl::Duration step;
  absl::Duration busy;
  absl::Duration host;
  absl::Duration total;
  absl::Duration gap = {};
  absl::Duration source = {};
};

struct Options {
  int num_new_tokens = 64;
  bool processors = false;
  std::string constraint;
  bool fp8 = false;
  std::string torch;
  std::vector<DecodeCase> cases;
};

std::shared_ptr<const FeatureMatrix> RandomFeatures(const DecodeCase& c,
                                                    int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  FeatureMatrix features = {.shape = *c.shape().encoder->feature_shape(),
                            .values = {}};
  features.values.resize(size_t(features.shape.num_rows) *
                         features.shape.num_cols);
  for (float& value : features.values) value = normal(random);
  return std::make_shared<const FeatureMatrix>(std::move(features));
}

Request RandomRequest(const DecodeCase& c, int vocab_size,
                      const Options& options, int seed) {
  std::mt19937 random(seed);
  Request request;
  if (c.shape().encoder) {
    request.features = RandomFeatures(c, seed);
    request.params.decoder_prompt_tokens = {4, 5, 6};
  } else {
    for (int i = 0; i < c.num_prompt_tokens; ++i) {
      request.prompt_tokens.push_back(random() % vocab_size);
    }
  }
  if (c.samples) {
    request.params.do_sample = true;
    request.params.top_p = 0.9;
    request.params.seed = seed;
    request.params.best_of = c.num_beams;
  } else {
    request.params.num_beams = c.num_beams;
  }
  if (options.processors) {
    request.params.repetition_penalty = 1.2;
    request.params.no_repeat_ngram_size = 3;
  }
  if (options.constraint == "lines") {
    request.params.constraint.emplace().regex =
        R"((\{"name": "[a-z ]{3,40}", "count": [0-9]{1,6}, )"
        R"("tags": \["[a-z]{1,20}"(, "[a-z]{1,20}")*\]\}\n)+)";
  } else if (options.constraint == "arrays") {
    request.params.constraint.emplace().json_schema =
        R"({"type": "array", "minItems": 64, "items": {"$ref": "#/$defs/value"},
            "$defs": {"value": {"anyOf": [
              {"type": "string"}, {"type": "number"},
              {"type": "array", "items": {"$ref": "#/$defs/value"}}]}}})";
  }
  request.params.max_new_tokens = options.num_new_tokens;
  request.params.eos_token_id.emplace();
  return request;
}

EngineStats ReadStats(boost::asio::io_context& context, Engine& engine) {
  EngineStats stats;
  boost::asio::co_spawn(
      context, engine.Stats(),
      [&](std::exception_ptr, EngineStats s) { stats = std::move(s); });
  context.restart();
  context.run();
  return stats;
}

Measured RunOnce(const DecodeCase& c,
                 const std::shared_ptr<StepExecutor>& steps,
                 const std::shared_ptr<const Tokenizer>& tokenizer,
                 int max_step_tokens, const Options& run) {
  boost::asio::io_context context(1);
  const auto clock = std::make_shared<StepClock>(steps, c.num_rows());
  EngineOptions options;
  options.scheduler.max_step_tokens = max_step_tokens;
  options.tokenizer = tokenizer;
  Engine engine =
      Engine::Create(context.get_executor(), clock, options).value();
  const Stopwatch watch;
  for (int i = 0; i < c.num_requests; ++i) {
    boost::asio::co_spawn(
        context,
        engine.Generate(
            RandomRequest(c, steps->description().vocab_size, run, i)),
        [](std::exception_ptr, const absl::StatusOr<Result>& result) {
          CHECK(result.ok()) << result.status().ToString();
        });
  }
  context.run();
  const absl::Duration total = watch.Elapsed();
  const EngineStats stats = ReadStats(context, engine);
  return {.step = clock->MeanStep(),
          .busy = clock->MeanBusy(),
          .host = (stats.plan_time + stats.advance_time) / stats.num_steps,
          .total = total};
}

// The worst case of pages that the scheduler promises, and some.
int64_t KvBytes(const DecodeCase& c, const TransformerConfig& config,
                int num_new_tokens) {
  const int64_t pages =
      c.num_requests *
          (CeilDiv(c.num_prompt_tokens, kPageSize) +
           int64_t{c.num_beams} * (CeilDiv(num_new_tokens, kPageSize) + 2)) +
      64;
  return pages * kPageSize * 4 * config.num_layers() * config.kv_size();
}

constexpr int kMaxSourcesAtOnce = 8;

int NumSourcesAtOnce(const DecodeCase& c) {
  return std::min(c.num_requests, kMaxSourcesAtOnce);
}

// Reads sources as a step does, copies of their features included, many times
// back to back.
absl::StatusOr<absl::Duration> MeasureSource(const DecodeCase& c,
                                             CudaModel* model) {
  const ModelDescription& description = model->description();
  ASSIGN_OR_RETURN(
      const CudaStepMemory memory,
      CudaStepMemory::Create(StepLimitsOf(description, model->bounds()),
                             model->null_page(), description.page_size));
  ASSIGN_OR_RETURN(const auto reader, CudaSourceReader::Create(model, &memory));
  std::vector<CudaSourceRead> reads;
  int next_page = 0;
  for (int i = 0; i < NumSourcesAtOnce(c); ++i) {
    std::vector<int> pages(CeilDiv(c.num_prompt_tokens, kPageSize));
    std::iota(pages.begin(), pages.end(), next_page);
    next_page += static_cast<int>(pages.size());
    RETURN_IF_CUDA_ERROR(cudaMemcpy(const_cast<int*>(memory.source_table(i)),
                                    pages.data(), pages.size() * sizeof(int),
                                    cudaMemcpyHostToDevice));
    reads.push_back({.input = std::make_shared<const EncoderInput>(
                         RandomFeatures(c, i), c.num_prompt_tokens),
                     .table = i});
  }
  ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  ASSIGN_OR_RETURN(const CudaEvent begin, CudaEvent::Create());
  ASSIGN_OR_RETURN(const CudaEvent end, CudaEvent::Create());
  absl::Duration best = absl::InfiniteDuration();
  constexpr int kRuns = 5, kReads = 4;
  for (int run = 0; run < kRuns; ++run) {
    cudaEventRecord(begin.get(), stream.get());
    for (int i = 0; i < kReads; ++i) {
      RETURN_IF_ERROR(reader->Enqueue(reads, stream.get()));
    }
    cudaEventRecord(end.get(), stream.get());
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
    float ms = 0;
    cudaEventElapsedTime(&ms, begin.get(), end.get());
    best = std::min(best, absl::Milliseconds(ms) / (kReads * reads.size()));
  }
  return best;
}

absl::StatusOr<Measured> Measure(const DecodeCase& c, WeightFormat weights,
                                 const CudaDevice& device,
                                 const Options& options) {
  const TransformerConfig& config = c.shape();
  int max_step_tokens = std::max(4096, c.num_rows());
  if (config.encoder) {
    max_step_tokens = std::max(
        max_step_tokens, NumSourcesAtOnce(c) * config.encoder->max_tokens);
  }
  const CudaTransformerOptions transformer = {
      .page_size = kPageSize,
      .kv_cache_bytes = KvBytes(c, config, options.num_new_tokens),
      .dtype = DType::kBFloat16,
      .weights = weights,
      .max_tokens = max_step_tokens,
      // With room for the candidates of a constraint that recurs.
      .max_logits = options.constraint.empty() ? c.num_rows()
                                               : std::max(128, c.num_rows())};
  ASSIGN_OR_RETURN(auto model,
                   CudaTransformer::Random(config, transformer, device));
  absl::Duration source;
  if (config.encoder) {
    ASSIGN_OR_RETURN(source, MeasureSource(c, model.get()));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaExecutor> steps,
                   CudaExecutor::Create(std::move(model)));
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!options.constraint.empty()) {
    ASSIGN_OR_RETURN(tokenizer, RandomTokenizer(config.vocab_size));
  }
  RunOnce(c, steps, tokenizer, max_step_tokens, options);
  Measured measured = RunOnce(c, steps, tokenizer, max_step_tokens, options);
  measured.gap = steps->figures().median_gap;
  measured.source = source;
  return measured;
}

// Milliseconds of torch's step by case, from the lines of `path`.
absl::StatusOr<std::map<std::string, double>> ReadTorch(
    const std::string& path) {
  std::map<std::string, double> steps;
  if (path.empty()) return steps;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 20));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    ASSIGN_OR_RETURN(const json::value value, ParseJson(line));
    const std::string name = Concat(std::string(value.at("model").as_string()),
                                    ":", value.at("requests").as_int64(), "x",
                                    value.at("beams").as_int64(), "/",
                                    value.at("prompt").as_int64());
    steps[name] = value.at("step_ms").as_double();
  }
  return steps;
}

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--new-tokens" && i + 1 < argc) {
      options.num_new_tokens = std::atoi(argv[++i]);
    } else if (arg == "--torch" && i + 1 < argc) {
      options.torch = argv[++i];
    } else if (arg == "--fp8") {
      options.fp8 = true;
    } else if (arg == "--processors") {
      options.processors = true;
    } else if (arg == "--constraint" && i + 1 < argc) {
      options.constraint = argv[++i];
      if (options.constraint != "lines" && options.constraint != "arrays") {
        return InvalidArgument("--constraint must be lines or arrays, got ",
                               options.constraint);
      }
    } else {
      ASSIGN_OR_RETURN(options.cases.emplace_back(), DecodeCase::Parse(arg));
    }
  }
  if (options.num_new_tokens < 4) {
    return InvalidArgument("--new-tokens must be at least 4");
  }
  return options;
}

double LimitMs(const DecodeCase& c, WeightFormat weights,
               const DeviceRoofline& rates, int num_generated) {
  const int weight_bytes = weights == WeightFormat::kFp8 ? 1 : 2;
  return 1e3 *
         std::max(c.StepBytes(num_generated, weight_bytes) / rates.bytes_per_s,
                  c.StepFlops(num_generated) / rates.flops_per_s);
}

void PrintLine(const std::string& name, const Measured& m, double limit_ms,
               std::optional<double> torch_ms) {
  const double step_ms = absl::ToDoubleMilliseconds(m.step);
  const std::string torch =
      torch_ms ? absl::StrFormat("%.3f | %.2f", *torch_ms, *torch_ms / step_ms)
               : "– | –";
  const std::string source =
      m.source == absl::ZeroDuration()
          ? "–"
          : absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(m.source));
  std::printf(
      "| %s | %.4f | %.4f | %.1f | %.1f | %.4f | %.2f | %s | %s | %.3f "
      "|\n",
      name.c_str(), step_ms, absl::ToDoubleMilliseconds(m.busy),
      absl::ToDoubleMicroseconds(m.gap), absl::ToDoubleMicroseconds(m.host),
      limit_ms, step_ms / limit_ms, source.c_str(), torch.c_str(),
      absl::ToDoubleSeconds(m.total));
  std::fflush(stdout);
}

void MeasureAndPrint(const DecodeCase& c, WeightFormat weights,
                     const CudaDevice& device, const DeviceRoofline& rates,
                     const Options& options, std::optional<double> torch_ms) {
  const std::string name =
      c.name + (weights == WeightFormat::kFp8 ? ", fp8" : "");
  const absl::StatusOr<Measured> measured =
      Measure(c, weights, device, options);
  if (!measured.ok()) {
    std::printf("| %s | %s |\n", name.c_str(),
                Message(measured.status()).c_str());
    return;
  }
  PrintLine(name, *measured,
            LimitMs(c, weights, rates, options.num_new_tokens / 2), torch_ms);
}

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const CudaDevice device, CudaDevice::Open(0));
  ASSIGN_OR_RETURN(const auto torch, ReadTorch(options.torch));
  ASSIGN_OR_RETURN(const DeviceRoofline rates, MeasureRates(device));
  std::printf(
      "%s, bf16, reads %.2f TB/s, multiplies %.0f TFLOP/s; %d new "
      "tokens%s%s\n\n",
      device.name.c_str(), rates.bytes_per_s / 1e12, rates.flops_per_s / 1e12,
      options.num_new_tokens,
      options.processors ? ", penalties and n-grams" : "",
      (options.constraint.empty() ? "" : ", constraint " + options.constraint)
          .c_str());
  std::printf(
      "| model:requests×beams/prompt | ms/step | busy | gap µs | host µs | "
      "limit ms | "
      "step / limit | source ms | torch ms | torch / step | total s |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const DecodeCase& c : options.cases) {
    const auto found = torch.find(c.name);
    MeasureAndPrint(
        c, WeightFormat::kAsStored, device, rates, options,
        found == torch.end() ? std::nullopt : std::optional(found->second));
    if (!options.fp8) continue;
    MeasureAndPrint(c, WeightFormat::kFp8, device, rates, options,
                    std::nullopt);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  const auto options = espalier::ParseOptions(argc, argv);
  const absl::Status status =
      options.ok() ? espalier::Run(*options) : options.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "cuda_step_benchmark: %s\n",
               espalier::Message(status).c_str());
  return 1;
}
