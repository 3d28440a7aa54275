// Compares results with and without speculation, on requests of your own, and
// measures the gain (docs/speculation.md, "Proof").
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "benchmarks/speculate/beginning_tables.h"
#include "benchmarks/speculate/speculation_report.h"
#include "benchmarks/speculate/speculation_requests.h"
#include "espalier/backend_options.h"
#include "espalier/generator.h"
#include "request/read_speculation.h"

namespace espalier::verify_speculation {

namespace {

constexpr char kHelp[] = R"(Examples:
  verify_speculation -m models/en-fr --draft-model models/en-fr-draft \
    requests.jsonl
  verify_speculation -m models/en-fr --speculate ngram:8 --max-running 1 \
    requests.jsonl

FILE has a request a line, as espalier batch takes it; each text is one prompt:
  {"prompt": "It rains.", "params": {"num_beams": 4}}
  {"prompt": "No.", "params": {"do_sample": true, "speculate": "ngram:8"}}
Each runs without speculation and with: as its own "speculate" says, or else as
--speculate does.

For the comparison every step has drafts for which there is room, also where
they do not pay and would be turned off; so that there is room only so many
requests run together. Where no draft was verified all the same, as ngram finds
none in texts that do not repeat, nothing was shown; the verdict says of how
many requests that is so, and a line above it which lines of FILE have them.

Greedy search, beams, and samples in mode "coupled" must be equal token for
token and score for score, to the bit. On a GPU scores are compared within
rounding, which follows from how many rows a step has: 1e-4 of themselves with
--dtype f32, 0.005 with f16, 0.03 with bf16. There near ties may fall the other
way with and without speculation; f32 has the fewest.

Samples in mode "rejection" are other ones with drafts, of the same
distribution. So each such request is sampled --samples times with speculation
and as often without, all with seeds of their own, and the tokens at places 2 to
4 and the pairs of neighbours are compared by a permutation test. The p-value
says how likely a difference as great is if there is none. The verdict calls a
right implementation different once in 1,000 files. It sees a token whose
probability differs by about 5 / sqrt(samples), 0.11 with 2,000; it does not see
what is smaller, nor what is only in later tokens or in rare ones: for that
there are the exact comparisons, and the tests of this project.

Times are of all requests together, both ways in turn, with drafts as they pay;
--max-running 1 has them run one by one. Runs of less than 0.2 s say nothing of
speed, and are not compared: repeat the lines of FILE.

It takes 2 + 2 * --rounds runs of FILE, and of each request in mode rejection
2 * --samples more, of up to 36 tokens: 4,000 runs unless --samples says
otherwise (at least 100). These take most of the time, for a short sentence
some 10 s of CPU time with models/en-fr.

Exit code: 0 if the verdict is equal, 1 if it is different, 2 if it could not
run, or a request of FILE is wrong, 3 if nothing was shown.)";

constexpr int kCannotRun = 2;

struct Options {
  std::string model;
  std::string file;       // requests; "-" is stdin
  std::string speculate;  // METHOD[:N[:MODE]]; empty: by the generator
  GeneratorOptions generator;
  int64_t num_samples = 2000;
  int64_t num_rounds = 3;  // that are timed
  int64_t seed = 1;
};

using Results = std::vector<absl::StatusOr<Generation>>;

// Samples are counted and dropped after this many requests, so that memory
// grows only with the counts.
constexpr int kSampledTogether = 4096;

// Tokens that a request feeds in a step that verifies its drafts.
int64_t TokensOfAStep(const SpeculationRequest& request) {
  const int64_t num_tokens = request.with.params.speculate->num_tokens;
  // Beams have paths that were pruned on the way, too.
  const int64_t num_paths = request.is_beam_search ? 2 : 1;
  return request.num_sequences * (1 + num_paths * num_tokens);
}

// Tolerance of scores: on a GPU the order of floating-point sums depends on the
// number of rows in a step. docs/performance.md has the measured differences.
double ToleranceOf(const BackendOptions& options) {
  if (!options.device.is_cuda) return 0;
  switch (options.dtype) {
    case DType::kFloat32:
      return 1e-4;
    case DType::kFloat16:
      return 5e-3;
    case DType::kBFloat16:
      return 3e-2;
  }
  return 0;
}

// Use of drafts in a run.
enum class Drafts {
  kNone,
  kWherePaying,  // as they do elsewhere
  kAlways,       // so that there is something to compare
};

GenerationRequest WithDrafts(const SpeculationRequest& pair, Drafts drafts) {
  GenerationRequest request =
      drafts == Drafts::kNone ? pair.without : pair.with;
  request.params.speculate->always_drafts = drafts == Drafts::kAlways;
  return request;
}

class Verification {
 public:
  Verification(Generator* generator, const Options& options,
               const BackendOptions& resolved, SpeculationRequests requests)
      : generator_(*generator),
        options_(options),
        room_(RoomToCompare(resolved)),
        file_(std::move(requests)) {
    report_.left_out = std::move(file_.left_out);
    report_.exact.tolerance = ToleranceOf(resolved);
    report_.may_add_draft_model = options.generator.draft_model.empty() &&
                                  !generator->description().encoder;
  }

  // Errors: of a request that fails without speculation, or cannot have it.
  absl::Status Run() {
    RETURN_IF_ERROR(Compare());
    TimeAll();
    for (const SpeculationRequest& pair : file_.requests) {
      if (pair.by_distribution) RETURN_IF_ERROR(Sample(pair));
    }
    return absl::OkStatus();
  }

  const SpeculationReport& report() const { return report_; }

  // One line on the amount of work to come.
  std::string WorkToDo() const {
    const int64_t num_sampled = NumSampled();
    std::string work = Concat(Pluralize(file_.requests.size(), "request"), ", ",
                              2 + 2 * options_.num_rounds, " runs each");
    if (num_sampled > 0) {
      work += Concat("; ", num_sampled, " of them in mode rejection, ",
                     2 * options_.num_samples,
                     " samples each besides (2 x --samples)");
    }
    return work;
  }

 private:
  // Limits a step of requests that are compared together to half of what it
  // can have, in tokens and in rows of logits: the rest is for the prompts of
  // those that follow.
  static int64_t RoomToCompare(const BackendOptions& options) {
    int room = options.max_step_tokens;
    if (options.max_beams > 0) room = std::min(room, options.max_beams);
    return room / 2;
  }

  int64_t NumSampled() const {
    return std::ranges::count_if(
        file_.requests,
        [](const SpeculationRequest& pair) { return pair.by_distribution; });
  }

  // Runs `count` requests, as many together as have room for their drafts; one
  // at least. get(i) returns the i-th and adds its tokens of a step to its
  // argument.
  template <typename Get>
  Results RunInRoom(size_t count, const Get& get) {
    Results results;
    std::vector<GenerationRequest> together;
    int64_t num_tokens = 0;
    const auto run = [&] {
      for (auto& result : generator_.GenerateAll(std::move(together))) {
        results.push_back(std::move(result));
      }
      together.clear();
      num_tokens = 0;
    };
    for (size_t i = 0; i < count; ++i) {
      int64_t more = 0;
      GenerationRequest request = get(i, &more);
      if (!together.empty() && num_tokens + more > room_) run();
      num_tokens += more;
      together.push_back(std::move(request));
    }
    run();
    return results;
  }

  Results RunToCompare(Drafts drafts) {
    return RunInRoom(file_.requests.size(), [&](size_t i, int64_t* more) {
      *more = TokensOfAStep(file_.requests[i]);
      return WithDrafts(file_.requests[i], drafts);
    });
  }

  absl::Status Compare() {
    const Results without = RunToCompare(Drafts::kNone);
    const Results with = RunToCompare(Drafts::kAlways);
    for (size_t i = 0; i < file_.requests.size(); ++i) {
      const int64_t line = file_.requests[i].line;
      for (const auto* result : {&without[i], &with[i]}) {
        if (!result->ok()) return file_.OnLine(result->status(), line);
      }
      if (file_.requests[i].by_distribution) continue;
      report_.exact.Compare(line, *without[i], *with[i]);
    }
    return absl::OkStatus();
  }

  void TimeAll() {
    const SpeculationFigures before = generator_.Stats().speculation;
    report_.compared = before;
    for (int64_t i = 0; i < 2 * options_.num_rounds; ++i) {
      // Without and with, with and without, and so on.
      const bool with = i % 4 == 1 || i % 4 == 2;
      std::vector<GenerationRequest> requests;
      for (const SpeculationRequest& pair : file_.requests) {
        requests.push_back(
            WithDrafts(pair, with ? Drafts::kWherePaying : Drafts::kNone));
      }
      const Stopwatch watch;
      generator_.GenerateAll(std::move(requests));
      (with ? report_.times_with : report_.times_without)
          .push_back(watch.Elapsed());
    }
    report_.timed = generator_.Stats().speculation;
    report_.timed.Subtract(before);
  }

  // As many more than are counted as there are drafts in a step.
  static constexpr int64_t kSampledTokens = kCountedTokens + kMaxDraftTokens;

  // The request's beginning.
  static GenerationRequest Beginning(GenerationRequest request) {
    GenerationParams& params = request.params;
    params.best_of.reset();  // the best of several have another distribution
    params.logprobs.reset();
    params.prompt_logprobs.reset();
    if (!params.allowed_sequences && params.max_new_tokens) {
      params.max_new_tokens =
          std::min<int64_t>(*params.max_new_tokens, kSampledTokens);
    }
    return request;
  }

  absl::Status Sample(const SpeculationRequest& pair) {
    const auto number = std::ssize(report_.sampled);
    SampleComparison& sampled = report_.sampled.emplace_back();
    sampled.line = pair.line;
    BeginningTables tables[2];
    for (const bool with : {false, true}) {
      // Seeds that both had would give both the same first token, and lines
      // that are the same the same samples.
      int64_t seed = options_.seed + (2 * number + with) * options_.num_samples;
      GenerationRequest beginning =
          Beginning(WithDrafts(pair, with ? Drafts::kAlways : Drafts::kNone));
      const int num_returned = beginning.params.num_return_sequences;
      const int64_t count =
          (options_.num_samples + num_returned - 1) / num_returned;
      for (int64_t begin = 0; begin < count; begin += kSampledTogether) {
        const Results results =
            RunInRoom(std::min<int64_t>(kSampledTogether, count - begin),
                      [&](size_t, int64_t* more) {
                        *more = TokensOfAStep(pair);
                        beginning.params.seed = seed++;
                        return beginning;
                      });
        for (const auto& result : results) {
          if (!result.ok()) return file_.OnLine(result.status(), pair.line);
          tables[with].Add(*result);
          sampled.has_drafts |= result->usage.num_drafted_tokens > 0;
        }
      }
    }
    sampled.num_samples = tables[0].num_samples();
    sampled.p_value = tables[0].PValue(
        tables[1], SampleComparison::kFalseAlarms / NumSampled());
    return absl::OkStatus();
  }

  Generator& generator_;
  const Options& options_;
  const int64_t room_;
  SpeculationRequests file_;
  SpeculationReport report_;
};

int ExitCodeOf(SpeculationVerdict verdict) {
  switch (verdict) {
    case SpeculationVerdict::kEqual:
      return 0;
    case SpeculationVerdict::kDifferent:
      return 1;
    case SpeculationVerdict::kNothingShown:
      return 3;
  }
  return kCannotRun;
}

absl::StatusOr<SpeculationParams> DefaultSpeculation(
    const Options& options, const ModelDescription& model) {
  const bool has_draft = !options.generator.draft_model.empty();
  if (options.speculate.empty()) {
    return SpeculationParams{.method = has_draft ? SpeculationMethod::kDraft
                                                 : SpeculationMethod::kNgram};
  }
  const std::string json = WriteJson(json::value(options.speculate));
  std::optional<SpeculationParams> speculate;
  RETURN_IF_ERROR(ReadSpeculation("--speculate", JsonText{json}, &speculate));
  if (speculate->method == SpeculationMethod::kNone) {
    return InvalidArgument("--speculate must be a way to speculate, ",
                           "METHOD[:N[:MODE]], got ",
                           ShownInQuotes(options.speculate));
  }
  if (speculate->num_tokens < 1 || speculate->num_tokens > kMaxDraftTokens) {
    return InvalidArgument("--speculate: num_tokens must be in [1, ",
                           kMaxDraftTokens, "], got ", speculate->num_tokens);
  }
  if (speculate->method == SpeculationMethod::kDraft && !has_draft) {
    return InvalidArgument(
        "--speculate ", options.speculate, " needs a draft model",
        model.encoder ? ", and a model with an encoder takes none: ngram and "
                        "suffix need none"
                      : ": add --draft-model DIR");
  }
  return *speculate;
}

std::string FlagOf(std::string_view field) {
  std::string flag = Concat("--", field);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

absl::StatusOr<int> Verify(const Options& options) {
  const absl::StatusOr<BackendOptions> resolved = Resolve(options.generator);
  if (!resolved.ok()) return InWordsOf({.option = FlagOf}, resolved.status());
  ASSIGN_OR_RETURN(Generator generator,
                   Generator::Load(options.model, options.generator));
  ASSIGN_OR_RETURN(const SpeculationParams speculate,
                   DefaultSpeculation(options, generator.description()));
  ASSIGN_OR_RETURN(SpeculationRequests requests,
                   ReadSpeculationRequests(generator, speculate, options.file));
  Verification verification(&generator, options, *resolved,
                            std::move(requests));
  std::cerr << "verify_speculation: " << verification.WorkToDo() << std::endl;
  RETURN_IF_ERROR(verification.Run());
  std::cout << Format(verification.report());
  return ExitCodeOf(verification.report().verdict());
}

void AddOptions(CLI::App* app, Options* options) {
  GeneratorOptions& generator = options->generator;
  app->add_option("file", options->file, "JSON lines; - is stdin")
      ->required()
      ->option_text(" ");
  app->add_option("-m,--model", options->model, "a model directory")
      ->required()
      ->option_text("DIR");
  app->add_option("--draft-model", generator.draft_model,
                  "a smaller model of the same vocabulary")
      ->option_text("DIR");
  app->add_option("--speculate", options->speculate,
                  "for requests that do not say: METHOD[:N[:MODE]]; default "
                  "draft with --draft-model, otherwise ngram")
      ->option_text("METHOD");
  app->add_option("--samples", options->num_samples,
                  Concat("of a request in mode rejection, each way: at least "
                         "100; default ",
                         options->num_samples))
      ->check(CLI::Range(100, 10000000))
      ->option_text("N");
  app->add_option("--seed", options->seed, "of the first of them; default 1")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 52))
      ->option_text("N");
  app->add_option("--rounds", options->num_rounds,
                  Concat("timed runs each way; default ", options->num_rounds))
      ->check(CLI::Range(1, 1000))
      ->option_text("N");
  app->add_option("--device", generator.device, "cpu, cuda, cuda:N or auto")
      ->option_text("DEVICE");
  app->add_option("--dtype", generator.dtype, "f32, f16 or bf16")
      ->option_text("TYPE");
  app->add_option("--threads", generator.num_threads, "CPU threads")
      ->option_text("N");
  app->add_option("--max-running", generator.max_running,
                  "requests that run together")
      ->option_text("N");
  app->add_option("--max-step-tokens", generator.max_step_tokens,
                  "tokens of a step")
      ->option_text("N");
  app->add_option("--max-beams", generator.max_beams,
                  "beams and samples of all requests that run")
      ->option_text("N");
}

int Main(int argc, char** argv) {
  CLI::App app("Compares results with and without speculation.",
               "verify_speculation");
  Options options;
  AddOptions(&app, &options);
  app.footer(kHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kCannotRun;
  }
  const absl::StatusOr<int> code = Verify(options);
  if (code.ok()) return *code;
  std::cerr << "verify_speculation: " << Message(code.status()) << '\n';
  return kCannotRun;
}

}  // namespace

}  // namespace espalier::verify_speculation

int main(int argc, char** argv) {
  return espalier::verify_speculation::Main(argc, argv);
}
