#include "tests/executor/mixture_requests.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/check.h"

namespace espalier::testing {
namespace {

// Makes one request.
class Maker {
 public:
  Maker(std::mt19937& random, const ModelDescription& model,
        const MixtureLimits& limits)
      : random_(random), model_(model), limits_(limits) {}

  Request Make();

 private:
  int Below(int limit) { return static_cast<int>(random_() % limit); }
  bool OneIn(int count) { return Below(count) == 0; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }
  int64_t AnyToken() { return 4 + Below(model_.vocab_size - 4); }
  std::vector<int64_t> AnyTokens(int count);
  // Few as often as many; at times the most.
  int Width(int most);

  void AddSearch(GenerationParams* params);
  void AddSamples(GenerationParams* params);
  void AddBeams(GenerationParams* params);
  void AddSampling(GenerationParams* params);
  void AddPenalties(GenerationParams* params);
  void AddConstraints(GenerationParams* params);
  void AddSequences(GenerationParams* params);
  void AddStops(GenerationParams* params);
  void AddDrafts(GenerationParams* params);
  void AddOthers(Request* request);
  void AddEdits(GenerationParams* params);
  // Some share their first tokens, and some are others' beginnings.
  void AddContinuations(Request* request);
  void AddSequenceBias(GenerationParams* params);
  // Adds a language that bans leave a token of.
  void AddLanguage(GenerationParams* params);
  // Makes the last quarter of the tokens times, if params may have any.
  static void LeaveBans(GenerationParams* params);
  void AddTimestamps(GenerationParams* params);

  std::mt19937& random_;
  const ModelDescription& model_;
  const MixtureLimits& limits_;
};

std::vector<int64_t> Maker::AnyTokens(int count) {
  std::vector<int64_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(AnyToken());
  return tokens;
}

int Maker::Width(int most) {
  if (OneIn(12)) return most;
  const int bound = OneOf({8, 8, 40, 130, most});
  return 1 + Below(std::min(bound, most));
}

void Maker::AddSampling(GenerationParams* params) {
  params->seed = random_();
  if (OneIn(2)) params->temperature = OneOf({0.6, 0.9, 1.4});
  if (OneIn(3)) params->top_k = 1 + Below(200);
  if (OneIn(3)) params->top_p = OneOf({0.5, 0.8, 0.95});
  if (OneIn(5)) params->min_p = OneOf({0.002, 0.05});
  if (OneIn(6)) params->typical_p = OneOf({0.7, 0.95});
}

void Maker::AddSamples(GenerationParams* params) {
  params->do_sample = true;
  params->num_return_sequences =
      Width(std::min(limits_.max_samples, model_.limits.max_beams));
  if (OneIn(4)) {
    params->best_of = params->num_return_sequences;
    params->num_return_sequences = 1 + Below(params->num_return_sequences);
  }
  AddSampling(params);
}

void Maker::AddBeams(GenerationParams* params) {
  const int most = std::min(limits_.max_beams, model_.limits.max_beams);
  params->num_beams = std::max(2, Width(most));
  params->early_stopping = static_cast<EarlyStopping>(Below(3));
  params->length_penalty = OneOf({1.0, 1.0, 0.0, -1.0, 0.6, 2.0});
  if (OneIn(4)) params->length_penalty_form = LengthPenaltyForm::kWu;
  if (params->early_stopping == EarlyStopping::kTrue && OneIn(2)) {
    params->patience = 2.0;
  }
  switch (Below(8)) {
    case 0:
    case 1:
      params->num_beam_groups = OneOf({2, 4});
      params->num_beams -= params->num_beams % params->num_beam_groups;
      params->num_beams = std::max(params->num_beams, params->num_beam_groups);
      params->diversity_penalty = OneOf({0.0, 0.7});
      break;
    case 2:
      params->do_sample = true;
      AddSampling(params);
      break;
    case 3:
      params->stochastic = true;  // without params that have no meaning with it
      params->early_stopping = EarlyStopping::kFalse;
      params->patience = 1.0;
      params->length_penalty = 1.0;
      params->length_penalty_form = LengthPenaltyForm::kPower;
      AddSampling(params);
      break;
    default:
      break;
  }
  params->num_return_sequences = 1 + Below(params->num_beams);
}

void Maker::AddSearch(GenerationParams* params) {
  switch (Below(10)) {
    case 0:
      return;  // greedy
    case 1:
      params->do_sample = true;
      params->temperature = 0;
      params->seed = 1;
      return;
    case 2:
    case 3:
    case 4:
    case 5:
      return AddSamples(params);
    default:
      return AddBeams(params);
  }
}

void Maker::AddPenalties(GenerationParams* params) {
  if (OneIn(5)) params->repetition_penalty = OneOf({1.3, 0.8});
  if (OneIn(6)) params->frequency_penalty = OneOf({0.5, -0.2});
  if (OneIn(6)) params->presence_penalty = 0.7;
  if (OneIn(6)) params->no_repeat_ngram_size = 1 + Below(3);
}

void Maker::AddConstraints(GenerationParams* params) {
  if (OneIn(6)) {
    for (const int64_t token : AnyTokens(1 + Below(20))) {
      params->logit_bias.push_back({token, Below(9) - 4.25});
    }
    auto& biases = params->logit_bias.Edit();
    std::ranges::sort(biases);
    const auto is_same = [](const auto& a, const auto& b) {
      return a.first == b.first;
    };
    biases.erase(std::unique(biases.begin(), biases.end(), is_same),
                 biases.end());
  }
  if (OneIn(6)) {
    for (int i = Below(6); i >= 0; --i) {
      params->bad_words_ids.push_back(AnyTokens(1 + Below(3)));
    }
  }
  if (OneIn(6)) params->suppress_tokens = AnyTokens(1 + Below(300));
  if (OneIn(10)) {
    params->allowed_token_ids = AnyTokens(1 + Below(OneIn(2) ? 9 : 2000));
    params->allowed_token_ids->push_back(2);
  }
}

// Ids that end sequences are no tokens of them.
void Maker::AddSequences(GenerationParams* params) {
  std::vector<std::vector<int64_t>> sequences(1 + Below(60));
  const int branches = 1 + Below(12);
  for (std::vector<int64_t>& sequence : sequences) {
    const int length = 1 + Below(static_cast<int>(*params->max_new_tokens));
    for (int i = 0; i < length; ++i) {
      int64_t token = 4 + Below(branches);
      while (std::ranges::count(model_.eos_token_ids, token) > 0) ++token;
      sequence.push_back(token);
    }
  }
  params->allowed_sequences = std::move(sequences);
}

void Maker::AddStops(GenerationParams* params) {
  if (OneIn(4)) {
    params->min_new_tokens =
        1 + Below(static_cast<int>(*params->max_new_tokens));
  }
  if (OneIn(8)) params->ignore_eos = true;
  if (params->allowed_sequences) return;
  if (OneIn(5)) params->stop_token_ids = AnyTokens(1 + Below(60));
  if (OneIn(8)) {
    params->eos_token_id = AnyTokens(Below(3));
    if (OneIn(2)) params->eos_token_id->push_back(2);
  }
  if (OneIn(6)) {
    params->stop = {"e", "on", " de", "'"};
    params->stop.Edit().resize(1 + Below(4));
    params->include_stop = OneIn(2);
  }
}

// Adds drafts. Requests have few samples and more tokens, so that some drafts
// are accepted.
void Maker::AddDrafts(GenerationParams* params) {
  params->speculate = {
      .method = OneOf({SpeculationMethod::kNgram, SpeculationMethod::kSuffix}),
      .num_tokens = 1 + Below(8),
      .mode = OneOf({SpeculationMode::kCoupled, SpeculationMode::kRejection})};
  if (limits_.has_draft_model && OneIn(2)) {
    params->speculate->method = SpeculationMethod::kDraft;
  }
  if (IsBeamSearch(*params)) {
    // Wide ones do not draft by themselves.
    params->speculate->always_drafts = params->num_beams <= 40 && OneIn(2);
    if (params->num_beams > 40) return;
  }
  if (params->num_return_sequences > 8) return;
  if (params->allowed_sequences) return;
  params->max_new_tokens =
      std::max<int64_t>(4 + Below(24), params->min_new_tokens);
}

void Maker::AddSequenceBias(GenerationParams* params) {
  const int max_length = model_.selects_on_host ? 3 : 1;
  for (int i = Below(6); i >= 0; --i) {
    params->sequence_bias.push_back(
        {AnyTokens(1 + Below(max_length)), Below(9) - 4.25});
  }
  std::vector<SequenceBias>& biases = params->sequence_bias.Edit();
  std::ranges::sort(biases, {}, &SequenceBias::tokens);
  const auto is_same = [](const SequenceBias& a, const SequenceBias& b) {
    return a.tokens == b.tokens;
  };
  biases.erase(std::unique(biases.begin(), biases.end(), is_same),
               biases.end());
}

void Maker::AddLanguage(GenerationParams* params) {
  if (OneIn(4)) {
    params->constraint = {
        .grammar = OneOf({"root ::= \"(\" root \")\" root | [a-z]",
                          "root ::= [a-z ]* (\"<\" root \">\")?",
                          "root ::= root \"+\" t | t\nt ::= [0-9]+ | \"(\" "
                          "root \")\""})};
    return;
  }
  if (OneIn(4)) {  // counted; the last is read in two ways
    params->constraint = {
        .regex = OneOf({R"("[^"]{0,5000}")", "(?:\\p{L}{1,200}[ .]){1,9}",
                        "[a-z]{0,1200}(?:[.?!]+ ?)", ".{0,1000000}"})};
    return;
  }
  params->constraint = {.regex = OneOf({"[a-z ]+[.?!]", "([A-Z][a-z]* ?)+",
                                        ".{1,12}", "[0-9a-f]*", "[^aeiou]+",
                                        "(le chat|la souris)( dort)*"})};
}

// Removes options that a GPU refuses with normalised scores.
void Maker::LeaveBans(GenerationParams* params) {
  params->repetition_penalty = 1;
  params->frequency_penalty = params->presence_penalty = 0;
  params->logit_bias.clear();
  params->sequence_bias.clear();
  params->exponential_decay_length_penalty.reset();
  params->logprobs.reset();
}

void Maker::AddTimestamps(GenerationParams* params) {
  const bool is_drawn = params->stochastic || params->num_beam_groups > 1 ||
                        (params->num_beams > 1 && params->do_sample);
  if (is_drawn || params->constraint || params->allowed_sequences ||
      params->allowed_token_ids) {
    return;
  }
  if (params->speculate) return;
  const bool has_times = OneIn(2);
  if (!model_.selects_on_host && (has_times || OneIn(3))) {
    params->renormalize_logits = true;
    LeaveBans(params);
  }
  if (!has_times) return;
  params->timestamps = {
      .first_time = model_.vocab_size * 3 / 4, .end = 2, .no_timestamps = 3};
  if (OneIn(4)) params->timestamps->max_initial_step = 700;
  params->timestamps->after_prefix = OneIn(4);
  params->length_counts_eos = OneIn(2);
}

void Maker::AddOthers(Request* request) {
  AddEdits(&request->params);
  const bool is_restricted =
      request->params.allowed_sequences || request->params.allowed_token_ids;
  // A language may need two tokens.
  if (limits_.constrains && !is_restricted && OneIn(6) &&
      *request->params.max_new_tokens >= 2) {
    AddLanguage(&request->params);
  }
  if (request->params.speculate &&
      CanDraftBy(SpeculationMethod::kConstraint, request->params) && OneIn(2)) {
    request->params.speculate->method = SpeculationMethod::kConstraint;
  }
  AddTimestamps(&request->params);
  if (limits_.scores && OneIn(8)) AddContinuations(request);
  if (!request->params.prompt_logprobs || OneIn(2)) return;
  request->params.logprobs_start =
      Below(static_cast<int>(std::ssize(request->prompt_tokens)));
}

// Adds edits that leave a possible token at each position.
void Maker::AddEdits(GenerationParams* params) {
  const bool is_restricted =
      params->allowed_sequences || params->allowed_token_ids;
  if (!is_restricted && OneIn(6)) {
    params->begin_suppress_tokens = AnyTokens(1 + Below(300));
  }
  if (OneIn(5)) AddSequenceBias(params);
  if (OneIn(5)) {
    params->exponential_decay_length_penalty = {Below(8),
                                                OneOf({0.7, 1.05, 1.5})};
  }
  if (model_.selects_on_host || params->stochastic) {
    params->renormalize_logits = OneIn(3);
  }
  if (params->logprobs && model_.selects_on_host && OneIn(2)) {
    params->logprobs_mode = LogprobsMode::kProcessed;
  }
}

void Maker::AddContinuations(Request* request) {
  request->params = {};
  if (OneIn(3)) request->params.prompt_logprobs = Below(6);
  const int most = model_.has_shareable_pages ? 12 : 1;
  for (int i = Below(OneIn(6) ? 100 : 8); i >= 0; --i) {
    std::vector<int64_t> tokens = AnyTokens(1 + Below(most));
    if (i % 2 == 1 && !request->continuations.empty()) {
      const std::vector<int64_t>& other = request->continuations.back();
      tokens = {other.begin(), other.begin() + 1 + Below(std::ssize(other))};
      if (std::ssize(tokens) < most && OneIn(2)) tokens.push_back(AnyToken());
    }
    request->continuations.push_back(std::move(tokens));
  }
}

Request Maker::Make() {
  Request request;
  const int num_tokens =
      1 + Below(OneIn(4) ? limits_.max_prompt_tokens
                         : std::min(12, limits_.max_prompt_tokens));
  for (int i = 0; i < num_tokens; ++i) {
    request.prompt_tokens.push_back(static_cast<TokenId>(AnyToken()));
  }
  GenerationParams& params = request.params;
  params.max_new_tokens = 1 + Below(limits_.max_new_tokens);
  AddSearch(&params);
  AddPenalties(&params);
  AddConstraints(&params);
  if (!params.allowed_token_ids && OneIn(10)) AddSequences(&params);
  AddStops(&params);
  if (OneIn(4)) params.logprobs = Below(6);
  if (OneIn(6) && !model_.encoder) params.prompt_logprobs = Below(6);
  if (OneIn(50)) params.logprobs = kMaxLogProbs;
  if (limits_.speculates && CanSpeculate(params) && OneIn(2)) {
    AddDrafts(&params);
  }
  // Uses its own random numbers, so that the other fields do not change.
  std::mt19937 more(static_cast<uint32_t>(request.prompt_tokens[0]));
  Maker(more, model_, limits_).AddOthers(&request);
  const absl::Status valid = ValidateRequest(model_, &request);
  CHECK(valid.ok()) << valid.ToString();
  return request;
}

}  // namespace

Request AnyMixtureRequest(std::mt19937& random, const ModelDescription& model,
                          const MixtureLimits& limits) {
  return Maker(random, model, limits).Make();
}

std::vector<Request> AnyMixtureRequests(int count, uint32_t seed,
                                        const ModelDescription& model,
                                        const MixtureLimits& limits) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(AnyMixtureRequest(random, model, limits));
  }
  return requests;
}

}  // namespace espalier::testing
