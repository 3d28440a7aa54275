// Decode throughput of the whole engine on models/en-fr, and where the time of
// a step goes. Each run translates `requests` sentences with `beams` beams,
// all submitted at once.
//
//   build/release/bin/decode_benchmark
//
// It runs one thread a usable CPU, and prints how many these are.
// BM_Decode awaits results; BM_Stream reads every request while it runs.
// Counters: tokens/s (live beams fed, one token each), and the share of the
// step time of each phase; `outside` is all but the forward pass.
#include <benchmark/benchmark.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/cpu_count.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/source_tree.h"
#include "text/prompt_template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

const std::string kModel = SourcePath("models/en-fr");
constexpr const char* kSentences[] = {
    "Where is the station?",        "I have never seen such a thing.",
    "He asked me what I wanted.",   "The weather is fine today.",
    "She gave him a book to read.", "We must find another solution.",
    "Do you know what time it is?", "My brother lives in a small town."};

template <typename T>
T Must(absl::StatusOr<T> value) {
  CHECK(value.ok()) << value.status().ToString();
  return *std::move(value);
}

// State shared by all runs.
struct Bench {
  std::shared_ptr<ThreadPool> threads =
      Must(ThreadPool::Create(NumUsableCpus()));
  std::shared_ptr<TransformerModel> model =
      Must(TransformerModel::Load(kModel, TransformerOptions(), threads));
  std::shared_ptr<const Tokenizer> tokenizer =
      Must(Tokenizer::Load(kModel + "/tokenizer.model"));
  PromptTemplates templates = Must(PromptTemplates::Load(kModel, *tokenizer));

  Request MakeRequest(int i, int num_beams) const {
    Request request;
    request.prompt_tokens = Must(templates.default_template().Apply(
        kSentences[i % std::size(kSentences)], *tokenizer));
    request.params.num_beams = num_beams;
    request.params.max_new_tokens = 40;
    return request;
  }
};

Bench& SharedBench() {
  static auto* const bench = new Bench();
  return *bench;
}

// Adds up `stats` over runs, and reports at the end.
class PhaseShares {
 public:
  void Add(const EngineStats& stats) {
    forward_ += stats.forward_time;
    select_ += stats.select_time;
    plan_ += stats.plan_time;
    advance_ += stats.advance_time;
    whole_ += stats.step_time;
    num_rows_ += stats.num_decode_rows;
    num_steps_ += stats.num_steps;
  }

  void Report(benchmark::State& state) const {
    state.counters["tokens/s"] =
        benchmark::Counter(num_rows_, benchmark::Counter::kIsRate);
    state.counters["us/step"] = absl::ToDoubleMicroseconds(whole_) / num_steps_;
    state.counters["forward%"] = Percent(forward_);
    state.counters["select%"] = Percent(select_);
    state.counters["plan%"] = Percent(plan_);
    state.counters["advance%"] = Percent(advance_);
    state.counters["outside%"] = Percent(whole_ - forward_);
  }

 private:
  double Percent(absl::Duration part) const {
    return 100 * absl::FDivDuration(part, whole_);
  }

  absl::Duration forward_, select_, plan_, advance_, whole_;
  double num_rows_ = 0;
  double num_steps_ = 0;
};

enum class Reading { kResults, kStreams };

boost::asio::awaitable<void> ReadStream(Engine& engine, Request request) {
  ResultStream stream = Must(co_await engine.Stream(std::move(request)));
  while (Must(co_await stream.Next()).has_value()) continue;
}

boost::asio::awaitable<void> ReadResult(Engine& engine, Request request) {
  Must(co_await engine.Generate(std::move(request)));
}

EngineStats RunOnce(int num_requests, int num_beams, Reading reading) {
  Bench& bench = SharedBench();
  boost::asio::io_context context(1);
  EngineOptions options;
  options.tokenizer = bench.tokenizer;
  Engine engine = Must(Engine::Create(
      context.get_executor(),
      Must(ModelExecutor::Create(bench.model, bench.threads)), options));
  for (int i = 0; i < num_requests; ++i) {
    const auto read = reading == Reading::kStreams ? ReadStream : ReadResult;
    boost::asio::co_spawn(context,
                          read(engine, bench.MakeRequest(i, num_beams)),
                          boost::asio::detached);
  }
  context.run();
  std::future<EngineStats> stats =
      boost::asio::co_spawn(context, engine.Stats(), boost::asio::use_future);
  context.restart();
  context.run();
  return stats.get();
}

void Measure(benchmark::State& state, Reading reading) {
  PhaseShares shares;
  for (auto _ : state) {
    shares.Add(RunOnce(static_cast<int>(state.range(0)),
                       static_cast<int>(state.range(1)), reading));
  }
  shares.Report(state);
}

void BM_Decode(benchmark::State& state) { Measure(state, Reading::kResults); }
BENCHMARK(BM_Decode)
    ->ArgNames({"requests", "beams"})
    ->Args({1, 1})
    ->Args({1, 4})
    ->Args({16, 1})
    ->Args({16, 4})
    ->Args({16, 8})
    ->Args({128, 4})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// As above, with every result read token by token.
void BM_Stream(benchmark::State& state) { Measure(state, Reading::kStreams); }
BENCHMARK(BM_Stream)
    ->ArgNames({"requests", "beams"})
    ->Args({16, 1})
    ->Args({16, 4})
    ->Args({128, 4})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext(
      "threads",
      std::to_string(espalier::SharedBench().threads->num_threads()));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
