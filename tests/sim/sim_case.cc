#include "tests/sim/sim_case.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/wording.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/pages/group_pages.h"
#include "request/generation_params.h"
#include "tests/batcher/toy_requests.h"

namespace espalier::testing {
namespace {

// Common prefixes of prompts.
using Stems = std::vector<std::vector<TokenId>>;

std::vector<TokenId> AnyTokens(Dice& dice, int count, int vocab_size) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = dice.Any(1, vocab_size - 1);
  return tokens;
}

Stems AnyStems(Dice& dice, int vocab_size) {
  Stems stems;
  for (int i = 0; i < 3; ++i) {
    stems.push_back(AnyTokens(dice, dice.OneOf({3, 12, 40, 90}), vocab_size));
  }
  return stems;
}

// A stem, or most of one, and something of its own; seldom nothing else.
std::vector<TokenId> AnyPrompt(Dice& dice, const Stems& stems, int vocab_size) {
  std::vector<TokenId> prompt;
  if (!dice.Chance(200)) {
    prompt = stems[dice.Any(0, 2)];
    if (dice.Chance(400)) prompt.resize(dice.Any(1, std::ssize(prompt)));
  }
  const int num_own = prompt.empty() || !dice.Chance(250) ? dice.Any(1, 9) : 0;
  for (const TokenId token : AnyTokens(dice, num_own, vocab_size)) {
    prompt.push_back(token);
  }
  return prompt;
}

void Widen(Dice& dice, GenerationParams* params) {
  if (params->do_sample && params->num_beams == 1) {
    params->best_of = dice.Any(6, 12);
  } else if (params->num_beam_groups == 1) {
    params->num_beams = dice.Any(6, 12);
  }
}

//   lengths  how many of a thousand generate long and do not end before
Request AnyRequest(Dice& dice, const Stems& stems, int lengths,
                   const ModelDescription& model) {
  Request request = RandomRequest(dice.source(), model);
  request.prompt_tokens = AnyPrompt(dice, stems, model.vocab_size);
  if (!dice.Chance(lengths)) {
    if (dice.Chance(150)) Widen(dice, &request.params);
  } else {
    request.params.max_new_tokens = dice.Any(13, 40);
    request.params.ignore_eos = !request.params.allowed_sequences;
  }
  const absl::Status valid = ValidateRequest(model, &request);
  CHECK(valid.ok()) << valid.ToString();
  return request;
}

SimModelOptions AnySimModel(Dice& dice, uint32_t seed) {
  SimModelOptions model;
  model.seed = seed + 1;
  model.vocab_size = dice.OneOf({4, 5, 11, 11});
  model.eos_boost = static_cast<float>(dice.OneOf({-4, 0, 2}));
  if (dice.Chance(300)) model.eos_token_ids = {0, 2};
  model.impossible_percent = dice.OneOf({0, 0, 0, 20});
  model.num_levels = dice.OneOf({0, 0, 4});
  model.page_size = dice.OneOf({1, 2, 3, 4, 8, 16});
  model.has_shareable_pages = !dice.Chance(150);
  if (dice.Chance(120)) model.memory = SimModelOptions::Memory::kSequences;
  if (dice.Chance(250)) {
    model.limits.max_beams = dice.Any(12, 20);
    model.limits.max_prefill_rows = dice.Any(1, 9);
    model.limits.max_step_tokens = model.limits.max_beams + dice.Any(0, 9);
  }
  return model;
}

// From the need of the widest request to that of many together; sometimes
// fewer, so that some are refused.
int AnyNumPages(Dice& dice, const SimCase& sim_case) {
  int64_t most = 1;
  for (const Request& request : sim_case.requests) {
    most = std::max(most, NumPagesOf(sim_case, request));
  }
  switch (dice.Any(0, 9)) {
    case 0:
      return static_cast<int>(std::max<int64_t>(1, most - dice.Any(1, 9)));
    case 1:
    case 2:
    case 3:
      return static_cast<int>(most);
    case 4:
    case 5:
      return static_cast<int>(most) + dice.Any(1, 6);
    case 6:
    case 7:
      return static_cast<int>(most * 3 / 2) + 1;
    case 8:
      return static_cast<int>(most * 3);
    default:
      return static_cast<int>(most * 10);
  }
}

SchedulerOptions AnySchedulerOptions(Dice& dice) {
  return {.max_running = dice.OneOf({1, 4, 8, 16, 16}),
          .max_step_tokens = dice.OneOf({1, 5, 13, 30, 60, 128}),
          .prefill_share = dice.OneOf({0.0, 0.25, 0.5, 1.0}),
          .prefix_cache = !dice.Chance(100),
          .validate_steps = true};
}

// Many that are narrow and generate much, where few fit to their end: groups
// are preempted all the time.
void MakeTight(Dice& dice, SimCase* sim_case) {
  sim_case->model.page_size = dice.OneOf({1, 2, 3, 4});
  for (Request& request : sim_case->requests) {
    GenerationParams& params = request.params;
    if (params.allowed_sequences || NumSequences(params) > 4) continue;
    params.max_new_tokens = dice.Any(20, 40);
    params.ignore_eos = true;
    if (request.prompt_tokens.size() > 12) request.prompt_tokens.resize(12);
  }
  int64_t most = 1;
  for (const Request& request : sim_case->requests) {
    most = std::max(most, NumPagesOf(*sim_case, request));
  }
  sim_case->model.num_pages = static_cast<int>(most) + dice.Any(0, 9);
  sim_case->scheduler.max_running = 16;
  sim_case->scheduler.max_step_tokens = dice.OneOf({30, 60, 128});
  if (sim_case->model.memory == SimModelOptions::Memory::kPages) {
    sim_case->plans_in_flight = 2;
  }
  sim_case->max_live = dice.OneOf({8, 15, 40});
  sim_case->arrival_gap = 4;
  sim_case->cancellations = dice.OneOf({0, 20});
}

// By dice of its own: without drafts the case is the same.
void Speculate(Dice dice, SimCase* sim_case) {
  sim_case->draft_model = sim_case->model;
  SimModelOptions& draft = sim_case->draft_model;
  draft.disagree_percent = dice.OneOf({0, 10, 40, 100});
  draft.page_size = dice.OneOf({1, 3, 8});
  draft.num_pages = dice.OneOf({20, 100, 1000});
  draft.limits = {};
  draft.num_host_slots = 0;
  const int per_mille = dice.OneOf({0, 300, 1000});
  for (Request& request : sim_case->requests) {
    GenerationParams& params = request.params;
    if (!CanSpeculate(params) || !dice.Chance(per_mille)) continue;
    // Half draft whether it pays or not: what drafts cost lets hardly any
    // through.
    params.speculate = {
        dice.OneOf({SpeculationMethod::kNgram, SpeculationMethod::kSuffix,
                    SpeculationMethod::kDraft, SpeculationMethod::kDraft}),
        dice.Any(1, 8), SpeculationMode::kCoupled,
        /*always_drafts=*/dice.Chance(500)};
    if (CanDraftBy(SpeculationMethod::kConstraint, params) &&
        dice.Chance(500)) {
      params.speculate->method = SpeculationMethod::kConstraint;
    }
  }
}

// From one slot to more than there are pages; none in a third of the cases.
void AddHostMemory(Dice& dice, SimCase* sim_case) {
  SimModelOptions& model = sim_case->model;
  if (!SimModel(model, {}).description().has_shareable_pages) return;
  const int num_pages = model.num_pages;
  const int few = dice.Any(1, 10);
  model.num_host_slots = dice.OneOf({0, 0, 0, 1, few, num_pages / 2, num_pages,
                                     3 * num_pages, 3 * num_pages});
  model.load_time = dice.OneOf({0, 0, 1, 3, 8});
  sim_case->scheduler.preempted_pages = dice.OneOf(
      {PreemptedPages::kAuto, PreemptedPages::kAuto, PreemptedPages::kHost,
       PreemptedPages::kHost, PreemptedPages::kDrop});
}

}  // namespace

bool VerifiesDrafts(const SimCase& sim_case) {
  return sim_case.model.memory == SimModelOptions::Memory::kPages &&
         sim_case.model.has_shareable_pages;
}

SimCase MakeSimCase(uint32_t seed) {
  Dice dice(seed);
  SimCase sim_case;
  sim_case.model = AnySimModel(dice, seed);
  const SimModel roomy(sim_case.model, {});
  const Stems stems = AnyStems(dice, sim_case.model.vocab_size);
  const int num_requests = dice.Any(6, 20);
  const int lengths = dice.OneOf({0, 300, 800, 1000});
  for (int i = 0; i < num_requests; ++i) {
    sim_case.requests.push_back(
        AnyRequest(dice, stems, lengths, roomy.description()));
  }
  sim_case.model.num_pages = AnyNumPages(dice, sim_case);
  sim_case.scheduler = AnySchedulerOptions(dice);
  const bool is_async =
      sim_case.model.memory == SimModelOptions::Memory::kPages &&
      !dice.Chance(400);
  sim_case.plans_in_flight = is_async ? 2 : 1;
  sim_case.has_trace = dice.Chance(250);
  sim_case.max_live = dice.OneOf({2, 8, 15, 40});
  sim_case.arrival_gap = dice.OneOf({2, 8, 30});
  sim_case.num_priorities = dice.OneOf({1, 1, 3});
  sim_case.num_salts = dice.OneOf({1, 1, 3});
  sim_case.salt_period = dice.OneOf({5, 20, 100, 10000});
  sim_case.max_burst = dice.OneOf({1, 1, 6});
  sim_case.cancellations = dice.OneOf({0, 0, 50, 300});
  sim_case.failing_steps = dice.OneOf({0, 0, 20, 150});
  sim_case.wrong_answers = dice.OneOf({0, 0, 5, 40});
  if (dice.Chance(500)) MakeTight(dice, &sim_case);
  sim_case.num_tenants = dice.OneOf({1, 1, 3});
  sim_case.deadlines = dice.OneOf({0, 0, 100, 500});
  AddHostMemory(dice, &sim_case);
  if (VerifiesDrafts(sim_case)) Speculate(Dice(seed ^ 0xd4af7), &sim_case);
  return sim_case;
}

std::string Describe(const SimCase& sim_case) {
  const SimModelOptions& model = sim_case.model;
  const SchedulerOptions& scheduler = sim_case.scheduler;
  return Concat(
      model.num_pages, " pages of ", model.page_size, " tokens",
      model.memory == SimModelOptions::Memory::kSequences
          ? ", states by sequence"
      : model.has_shareable_pages ? ", shareable"
                                  : "",
      "; max_running ", scheduler.max_running, ", max_step_tokens ",
      scheduler.max_step_tokens, ", prefill_share ", scheduler.prefill_share,
      ", prefix_cache ", scheduler.prefix_cache, "; ", sim_case.plans_in_flight,
      " plans in flight; ", model.num_host_slots, " host slots, load_time ",
      model.load_time, ", preempted_pages ",
      static_cast<int>(scheduler.preempted_pages), "; of 1000 ",
      sim_case.cancellations, " cancellations, ", sim_case.failing_steps,
      " failing steps, ", sim_case.wrong_answers, " wrong answers, ",
      sim_case.deadlines, " deadlines; ", sim_case.num_tenants, " tenants");
}

int64_t NumPagesOf(const SimCase& sim_case, const Request& request) {
  return GroupPages::WorstCase(request, sim_case.model.page_size);
}

absl::StatusOr<Result> SimulateAlone(const SimCase& sim_case,
                                     const Request& request,
                                     std::unique_ptr<SearchWatcher> watcher) {
  SimModelOptions options = sim_case.model;
  options.num_pages = 4000;
  options.has_shareable_pages = false;
  options.num_host_slots = 0;
  SimModel model(options, [&](RequestId) {
    return SimModel::Asker{request.prompt_tokens, 1};
  });
  Scheduler scheduler(model.description(), {.prefix_cache = false});
  absl::StatusOr<Result> answer = absl::UnknownError("no answer");
  Request plain = request;
  plain.params.speculate.reset();
  scheduler.Submit(
      RequestId{0}, PreparedRequest(std::move(plain)),
      [&](absl::StatusOr<Result> result) { answer = std::move(result); },
      std::move(watcher));
  RunToEnd(scheduler, model);
  return answer;
}

}  // namespace espalier::testing
