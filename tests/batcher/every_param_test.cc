// Every parameter of the request format, in one batch with all the others: each
// request's result line is, byte for byte, that of the request alone, for any
// page size, prompt chunks, and number of plans in flight.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/constraint_cache.h"
#include "beam/strategy/selection_options.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_filters.h"
#include "kernels/verify/verify.h"
#include "model/transformer_model.h"
#include "request/json/request_json.h"
#include "request/json/result_json.h"
#include "request/param_fields.h"
#include "request/validate_sampling.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "text/tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// Params; every field of the format is in one of them at least, and those that
// act on scores are beside each way to decode.
constexpr const char* kParams[] = {
    R"({})",
    // Beams.
    R"({"num_beams": 4, "n": 3, "length_penalty": 0.6})",
    R"({"num_beams": 4, "n": 4, "length_counts_eos": false})",
    R"({"num_beams": 3, "num_return_sequences": 2, "length_penalty": 2,
        "length_penalty_form": "wu", "early_stopping": "never"})",
    R"({"num_beams": 4, "early_stopping": true, "patience": 2, "n": 4})",
    R"({"num_beams": 6, "n": 6, "num_beam_groups": 3,
        "diversity_penalty": 0.7})",
    R"({"num_beams": 4, "num_beam_groups": 4, "early_stopping": true})",
    R"({"num_beams": 50, "n": 7, "max_new_tokens": 3})",
    R"({"num_beams": 4, "n": 4, "stochastic": true, "seed": 1})",
    R"({"num_beams": 3, "n": 3, "stochastic": true, "seed": 2,
        "temperature": 0.7, "top_k": 9, "logprobs": 1})",
    R"({"num_beams": 4, "n": 4, "do_sample": true, "seed": 3})",
    R"({"num_beams": 4, "do_sample": true, "seed": 4, "temperature": 1.5,
        "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95, "logprobs": 0})",
    // Samples.
    R"({"do_sample": true, "n": 3, "seed": 5})",
    R"({"do_sample": true, "n": 2, "best_of": 5, "seed": 6, "logprobs": 2})",
    R"({"do_sample": true, "n": 2, "best_of": 5, "seed": 6,
        "length_counts_eos": false, "renormalize_logits": true,
        "suppress_tokens": [5, 6, 7, 8, 9], "temperature": 0.8})",
    R"({"do_sample": true, "temperature": 0.5, "seed": 7})",
    R"({"do_sample": true, "temperature": 0, "n": 2})",
    R"({"temperature": 0})",
    R"({"do_sample": true, "top_k": 3, "seed": 8})",
    R"({"do_sample": true, "top_p": 0.6, "seed": 9})",
    R"({"do_sample": true, "min_p": 0.1, "seed": 10})",
    R"({"do_sample": true, "typical_p": 0.5, "seed": 11})",
    R"({"do_sample": true, "n": 2, "temperature": 1.3, "top_k": 20,
        "top_p": 0.8, "min_p": 0.02, "typical_p": 0.9,
        "seed": 18446744073709551615})",
    // Penalties.
    R"({"repetition_penalty": 1.5})",
    R"({"num_beams": 3, "repetition_penalty": 0.8})",
    R"({"frequency_penalty": 0.6, "logit_bias": {"7": -1.5, "9": 1}})",
    R"({"num_beams": 3, "frequency_penalty": 0.4, "presence_penalty": -0.5})",
    R"({"do_sample": true, "seed": 12, "presence_penalty": 0.6,
        "repetition_penalty": 1.2, "logit_bias": {"5": 2.25}})",
    R"({"no_repeat_ngram_size": 2, "max_tokens": 12})",
    R"({"num_beams": 4, "no_repeat_ngram_size": 1})",
    R"({"num_beams": 4, "do_sample": true, "seed": 13,
        "frequency_penalty": 1, "no_repeat_ngram_size": 2})",
    R"({"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.3,
        "repetition_penalty": 1.3, "logit_bias": {"6": -2}})",
    R"({"num_beams": 3, "stochastic": true, "seed": 14,
        "presence_penalty": 0.9, "suppress_tokens": [4]})",
    R"({"sequence_bias": [[[5], -1.5], [[6, 7], 2], [[8, 9, 10], 3]]})",
    R"({"num_beams": 4, "n": 3, "logprobs": 1, "logit_bias": {"7": 0.5},
        "sequence_bias": [[[5, 5], 2], [[7], 0.5], [[6, 7], -2]]})",
    R"({"do_sample": true, "n": 3, "seed": 21, "logprobs": 2,
        "sequence_bias": [[[9, 9], 1.5], [[6, 7], 2.5]],
        "logprobs_mode": "processed_logprobs", "top_k": 12})",
    R"({"exponential_decay_length_penalty": [2, 1.2]})",
    R"({"num_beams": 4, "n": 3, "exponential_decay_length_penalty": [0, 0.8],
        "length_penalty": 0})",
    R"({"do_sample": true, "n": 2, "seed": 22, "temperature": 1.2,
        "exponential_decay_length_penalty": [3, 1.1],
        "repetition_penalty": 1.1})",
    R"({"num_beams": 4, "n": 3, "renormalize_logits": true,
        "suppress_tokens": [5, 6, 7], "repetition_penalty": 1.2})",
    R"({"num_beams": 3, "n": 3, "renormalize_logits": true, "logprobs": 2,
        "logprobs_mode": "processed_logprobs", "no_repeat_ngram_size": 1})",
    R"({"num_beams": 4, "do_sample": true, "seed": 23, "top_p": 0.9,
        "renormalize_logits": true, "presence_penalty": 0.5})",
    R"({"num_beams": 6, "n": 6, "num_beam_groups": 3, "logprobs": 1,
        "logprobs_mode": "processed_logprobs", "diversity_penalty": 0.4,
        "renormalize_logits": true, "logit_bias": {"6": -2}})",
    R"({"num_beams": 4, "n": 4, "stochastic": true, "seed": 24,
        "logprobs": 1, "logprobs_mode": "processed_logprobs",
        "temperature": 0.8, "sequence_bias": [[[4, 5], -3]]})",
    R"({"logprobs": 3, "logprobs_mode": "processed_logprobs",
        "frequency_penalty": 0.5, "renormalize_logits": true})",
    // Constraints.
    R"({"begin_suppress_tokens": [5, 6, 7, 8]})",
    R"({"num_beams": 3, "n": 2, "forced_bos_token_id": 6, "logprobs": 0,
        "begin_suppress_tokens": [5, 6, 7, 8], "min_new_tokens": 2})",
    R"({"do_sample": true, "n": 3, "seed": 25,
        "begin_suppress_tokens": [4, 9], "allowed_token_ids": [2, 4, 6, 9]})",
    R"({"bad_words_ids": [[5], [6, 7]], "suppress_tokens": [8, 9]})",
    R"({"num_beams": 3, "n": 3, "bad_words_ids": [[3], [4, 5]]})",
    R"({"bad_words": []})",  // an engine makes ids of words
    // For encoder-decoders only (tests/batcher/sources_test.cc).
    R"({"decoder_prompt": "", "decoder_prompt_tokens": []})",
    R"({"num_beams": 3, "allowed_token_ids": [0, 2, 5, 6, 7, 8, 9]})",
    R"({"do_sample": true, "seed": 15, "allowed_token_ids": [2, 5, 6, 7]})",
    R"({"allowed_sequences": [[5, 6], [5, 6, 7], [8, 9, 10, 11]]})",
    R"({"num_beams": 5, "n": 4,
        "allowed_sequences": [[5, 6], [5, 6, 7], [8, 9, 10, 11], [12]]})",
    R"({"do_sample": true, "n": 4, "seed": 16,
        "allowed_sequences": [[5, 6], [5, 6, 7], [8, 9, 10, 11], [12]]})",
    // Bytes are tokens of their own.
    R"({"constraint": {"regex": "[\\x01-\\x08]{2,4}!?"}})",
    R"({"num_beams": 4, "n": 3,
        "constraint": {"regex": "([\\x01-\\x08 ]*!)+"}, "logprobs": 1})",
    R"({"num_beams": 5, "n": 5, "early_stopping": "never",
        "constraint": {"choice": ["\u0001\u0002", "\u0003", " !\u0001",
                                  "\u0001\u0002\u0005\u0006"]}})",
    R"({"do_sample": true, "n": 4, "seed": 26, "logprobs": 2,
        "constraint": {"choice": ["\u0001\u0002", "\u0003", "\u0001"]}})",
    R"({"num_beams": 4, "n": 4, "logprobs": 0, "legal_log_mass": true,
        "renormalize_logits": true,
        "constraint": {"regex": "([\\x01-\\x08 ]*!)+"}})",
    R"({"do_sample": true, "n": 3, "seed": 28, "logprobs": 1,
        "legal_log_mass": true, "temperature": 1.3,
        "constraint": {"regex": "[\\x01-\\x05]{2,3}!"}})",
    R"({"do_sample": true, "n": 3, "seed": 27, "top_p": 0.9,
        "constraint": {"regex": "[\\x00-\\x1f]*"}, "min_new_tokens": 2,
        "repetition_penalty": 1.2, "suppress_tokens": [7, 9],
        "stop": ["\u0005", "\u0006"]})",
    R"({"num_beams": 6, "n": 6, "num_beam_groups": 3, "diversity_penalty": 0.4,
        "constraint": {"regex": "([\\x01-\\x05]\\x07){1,3}"}})",
    R"({"num_beams": 4, "n": 4, "stochastic": true, "seed": 28,
        "constraint": {"regex": "[\\x01-\\x05]{1,3}"}})",
    R"({"do_sample": true, "n": 3, "seed": 30, "start_after": "\u0003",
        "constraint": {"regex": "[\\x04-\\x08]+"}})",
    R"({"num_beams": 4, "n": 4, "start_after": "\u0003\u0004",
        "constraint": {"choice": ["\u0001\u0002", "\u0003"]}})",
    R"({"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 7,
        "constraint": {"must_contain": ["\u0005\u0002", "\u0003"],
                       "regex": "[\\x01-\\x05]*"}})",
    R"({"num_beams": 3, "do_sample": true, "seed": 29, "no_repeat_ngram_size": 2,
        "constraint": {"regex": "[\\x01-\\x05]{3,}"}, "stop_token_ids": [8],
        "logit_bias": {"9": 1.5}, "ignore_eos": true})",
    R"({"num_beams": 4, "n": 4, "logprobs": 1,
        "constraint": {"grammar":
            "root ::= [\\x01-\\x03] root [\\x04-\\x06] | \"!\""}})",
    R"({"do_sample": true, "n": 4, "seed": 30, "temperature": 1.5,
        "constraint": {"grammar":
            "root ::= [\\x01-\\x03] root [\\x04-\\x06] root | [\\x07-\\x0b]"}})",
    R"({"forced_bos_token_id": 6, "forced_eos_token_id": 2})",
    R"({"num_beams": 3, "n": 3, "forced_bos_token_id": 6, "logprobs": 2,
        "forced_eos_token_id": [2, 5], "max_new_tokens": 4,
        "repetition_penalty": 1.2})",
    R"({"do_sample": true, "n": 3, "seed": 19, "logprobs": 2,
        "forced_eos_token_id": [5, 7], "max_new_tokens": 4})",
    R"({"num_beams": 4, "n": 4, "stochastic": true, "seed": 20,
        "forced_bos_token_id": 6, "max_new_tokens": 5})",
    R"({"num_beams": 4, "n": 4, "num_beam_groups": 2, "max_new_tokens": 3,
        "diversity_penalty": 0.4, "forced_eos_token_id": [2, 8]})",
    // Stopping.
    R"({"max_new_tokens": 1})",
    R"({"min_new_tokens": 5, "max_tokens": 9})",
    R"({"num_beams": 3, "min_tokens": 4, "max_tokens": 6})",
    R"({"eos_token_id": [3, 5, 7]})",
    R"({"num_beams": 3, "eos_token_id": [], "stop_token_ids": [3, 5, 8]})",
    R"({"ignore_eos": true, "max_new_tokens": 7})",
    R"({"num_beams": 2, "deadline_ms": 2147483647,
        "skip_special_tokens": true})",
    R"({"stop": ["e", "a"]})",
    R"({"num_beams": 3, "n": 2, "stop": "s", "include_stop": true})",
    R"({"do_sample": true, "n": 3, "seed": 17, "stop": ["i", "on"]})",
    // Reports.
    R"({"logprobs": 3, "prompt_logprobs": 2})",
    R"({"num_beams": 2, "prompt_logprobs": 1, "logprobs_start": 1})",
    R"({"max_new_tokens": 0, "prompt_logprobs": 2})",
    R"({"num_beams": 3, "n": 3, "logprobs": 0, "prompt_logprobs": 0})",
    R"({"num_beams": 5, "n": 5, "beam_indices": true})",
    R"({"num_beams": 4, "n": 4, "beam_indices": true, "logprobs": 1,
        "early_stopping": true, "eos_token_id": [3, 5, 7]})",
    R"({"num_beams": 3, "n": 3, "beam_indices": true, "do_sample": true,
        "seed": 33, "temperature": 1.2})",
    R"({"num_beams": 4, "n": 4, "beam_indices": true, "stop": ["e", "a"],
        "constraint": {"regex": "([\\x01-\\x08 ]*!)+"}})",
    R"({"num_beams": 4, "num_beam_groups": 2, "n": 4, "logprobs": 5})",
    // Speculation.
    R"({"speculate": false})",
    // Scheduling.
    R"({"prefix_cache": false})",
    R"({"num_beams": 3, "n": 2, "prefix_cache": false, "priority": 2})",
    R"({"cache_salt": "a", "priority": -1})",
    R"({"tenant": "b", "num_beams": 2})",
    R"({"num_beams": 4, "cache_salt": "b", "prompt_logprobs": 1})",
    R"({"do_sample": true, "n": 3, "seed": 18, "cache_salt": "a",
        "priority": 4503599627370496})",
};

// Params with timestamps, a field of C++ alone.
constexpr const char* kTimedParams[] = {
    R"({"length_counts_eos": false})",
    R"({"num_beams": 5, "n": 5, "length_counts_eos": false})",
    R"({"num_beams": 4, "n": 3, "early_stopping": true, "patience": 2,
        "suppress_tokens": [5, 31], "logprobs": 2,
        "logprobs_mode": "processed_logprobs"})",
    R"({"num_beams": 3, "n": 3, "repetition_penalty": 1.3, "min_tokens": 3,
        "logit_bias": {"33": 1.5}, "frequency_penalty": 0.2})",
    R"({"do_sample": true, "n": 2, "best_of": 5, "seed": 31,
        "temperature": 0.7, "length_counts_eos": false})",
    R"({"do_sample": true, "n": 3, "seed": 32, "top_k": 12, "logprobs": 1,
        "logprobs_mode": "processed_logprobs", "no_repeat_ngram_size": 2})",
};

// The text of the request at a place of AllRequests().
const char* ParamsAt(size_t i) {
  return i < std::size(kParams) ? kParams[i]
                                : kTimedParams[i - std::size(kParams)];
}

TEST(EveryParamTest, EveryFieldOfTheFormatIsAmongThem) {
  std::set<const ParamField*> present;
  for (const char* params : kParams) {
    ASSERT_OK_AND_ASSIGN(const json::value value, ParseJson(params));
    for (const auto& [key, unused] : value.as_object()) {
      present.insert(FindParamField(key));
    }
  }
  for (const ParamField& field : ParamFields()) {
    EXPECT_EQ(present.count(&field), 1) << field.name;
  }
}

// Returns the params of kParams, and those with a decoder prompt, which that
// has for encoders only.
std::vector<GenerationParams> AllParams() {
  std::vector<GenerationParams> all(1);
  all[0].decoder_prompt_tokens = {5};
  for (const char* params : kParams) {
    GenerationParams& read = all.emplace_back();
    const json::value value = ParseJson(params).value();
    for (const auto& [key, field] : value.as_object()) {
      EXPECT_OK(SetParam(std::string(key), field, &read));
    }
  }
  return all;
}

TEST(EveryParamTest, KernelsAndRequestsHaveTheSameFilters) {
  int num_filtered = 0;
  for (const GenerationParams& params : AllParams()) {
    const bool filters = HasFilters(params);
    num_filtered += filters;
    const SamplingParams sampling = MakeSelectionParams(params, {})->sampling;
    EXPECT_EQ(HasFilters(sampling), filters && DrawsAtRandom(params));
    constexpr int kLargeVocab = std::numeric_limits<int>::max();
    EXPECT_EQ(!sampling.greedy() && !KeepsAll(sampling, kLargeVocab),
              HasFilters(sampling));
    if (!filters) continue;
    GenerationParams greedy = params;
    greedy.do_sample = greedy.stochastic = false;
    EXPECT_FALSE(ValidateSampling(greedy).ok());
  }
  EXPECT_GT(num_filtered, 0);
  GenerationParams zero;
  zero.do_sample = true;
  zero.min_p = -0.0;
  EXPECT_FALSE(HasFilters(MakeSelectionParams(zero, {})->sampling));
}

TEST(EveryParamTest, TracesHaveTheFieldsThatTheTableSays) {
  std::set<std::string> traced;
  for (const GenerationParams& params : AllParams()) {
    const Request request = {.prompt_tokens = {5}, .params = params};
    const TraceRequest event = DescribeRequest(RequestId{1}, request);
    for (const auto& [key, value] : event.params) traced.emplace(key);
  }
  for (const ParamField& field : ParamFields()) {
    EXPECT_EQ(traced.contains(std::string(field.name)), field.Is(kTraced))
        << field.name;
  }
}

TEST(EveryParamTest, ThePageHasTheFieldsThatTheTableSays) {
  ASSERT_OK_AND_ASSIGN(const std::string script,
                       ReadFile(SourcePath("serve/page/fields.js"), 1 << 20));
  const size_t begin = script.find("const FIELDS = [");
  const size_t end = script.find("];", begin);
  ASSERT_NE(end, script.npos);
  std::set<const ParamField*> shown, drawn;
  constexpr std::string_view kName = "{name: \"";
  for (size_t at = script.find(kName, begin); at < end;) {
    const size_t name = at + kName.size();
    const size_t next = script.find(kName, name);
    const std::string row = script.substr(at, std::min(next, end) - at);
    const ParamField* const field =
        FindParamField(script.substr(name, script.find('"', name) - name));
    ASSERT_NE(field, nullptr) << row;
    shown.insert(field);
    if (row.find("drawn: true") != row.npos) drawn.insert(field);
    at = next;
  }
  for (const ParamField& field : ParamFields()) {
    EXPECT_EQ(shown.contains(&field), field.Is(kOnPage)) << field.name;
    EXPECT_EQ(drawn.contains(&field),
              field.Is(kOnPage) && field.Is(kSampledOnly))
        << field.name;
  }
}

// A turn is made of a priority by a product that must not be cut off.
TEST(EveryParamTest, PrioritiesThatAreTakenHaveTurnsOfTheirOwn) {
  for (const int64_t priority : {-kMaxAbsPriority + 1, kMaxAbsPriority}) {
    EXPECT_LT(Turn::Of(priority - 1, 0, RequestId{2}),
              Turn::Of(priority, 0, RequestId{1}));
  }
}

// All params, with prompts of many lengths, for `model`: the same every time.
std::vector<Request> AllRequests(const ModelDescription& model) {
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (size_t r = 0; r < std::size(kParams) + std::size(kTimedParams); ++r) {
    const char* const params = ParamsAt(r);
    const RequestLine line = ParseRequestLine(
        R"({"prompt_tokens": [1], "params": )" + std::string(params) + "}");
    EXPECT_OK(line.body);
    Request& request = requests.emplace_back();
    request.params = line.body->params;
    if (r >= std::size(kParams)) {
      request.params.timestamps = {
          .first_time = 30, .end = 2, .no_timestamps = 29};
    }
    if (!request.params.max_new_tokens && !request.params.allowed_sequences) {
      request.params.max_new_tokens = 8;
    }
    const int num_tokens = 1 + static_cast<int>(random() % 20);
    for (int i = 0; i < num_tokens; ++i) {
      request.prompt_tokens.push_back(1 + random() % (model.vocab_size - 1));
    }
    EXPECT_OK(ValidateRequest(model, &request)) << params;
  }
  return requests;
}

class Runner {
 public:
  explicit Runner(const ModelDescription& model) {
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
    constraints_ = std::make_unique<ConstraintCache>(tokenizer_, model);
  }

  // The lines out of requests that run together, `num_at_once` of which arrive
  // before each step.
  std::vector<std::string> Run(Model& model,
                               const std::vector<Request>& requests,
                               const SchedulerOptions& options,
                               int plans_in_flight = 1, int num_at_once = 30) {
    // Groups that run ahead take tables in place of lists of legal tokens.
    ModelDescription description = model.description();
    description.has_token_masks = plans_in_flight > 1;
    Scheduler scheduler(description, options);
    std::vector<std::string> lines(requests.size());
    size_t next = 0;
    const auto arrive = [&](int) {
      for (int i = 0; i < num_at_once && next < requests.size(); ++i, ++next) {
        scheduler.Submit(
            RequestId{static_cast<int64_t>(next)},
            PreparedRequest(requests[next], tokenizer_, &description,
                            *constraints_->Get(requests[next])),
            [&line = lines[next]](absl::StatusOr<Result> result) {
              // Its usage depends on the other requests.
              if (result.ok()) result->usage.num_cached_tokens = 0;
              line = result.ok() ? WriteResultLine("0", *result, {})
                                 : WriteErrorLine("0", result.status());
            });
      }
    };
    RunToEnd(scheduler, model, arrive, plans_in_flight);
    return lines;
  }

  std::vector<std::string> RunEachAlone(Model& model,
                                        const std::vector<Request>& requests) {
    std::vector<std::string> lines;
    for (const Request& request : requests) {
      lines.push_back(Run(model, {request}, {.max_step_tokens = 500}).at(0));
    }
    return lines;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ConstraintCache> constraints_;
};

// Each request twice, so that there are 64 others.
std::vector<Request> Twice(std::vector<Request> requests) {
  const size_t size = requests.size();
  for (size_t i = 0; i < size; ++i) requests.push_back(requests[i]);
  return requests;
}

void ExpectSame(const std::vector<std::string>& together,
                const std::vector<std::string>& alone) {
  ASSERT_GE(together.size(), 65u);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i], alone[i % alone.size()])
        << ParamsAt(i % alone.size());
  }
}

TEST(EveryParamTest, TogetherIsAsAloneOnAnyPagesAndPlans) {
  ToyModelOptions options;
  options.vocab_size = 40;
  options.eos_boost = 1;
  options.page_size = 16;
  options.num_pages = 2000;
  ToyModel roomy(options);
  Runner runner(roomy.description());
  const std::vector<Request> requests = AllRequests(roomy.description());
  const std::vector<std::string> alone = runner.RunEachAlone(roomy, requests);
  const std::set<std::string> distinct(alone.begin(), alone.end());
  EXPECT_GT(distinct.size(), std::size(kParams) * 9 / 10);
  for (const int page_size : {1, 3, 64}) {
    options.page_size = page_size;
    options.num_pages = 30'000 / page_size;
    for (const int max_step_tokens : {3, 60, 1000}) {
      for (const int plans_in_flight : {1, 2}) {
        if (FewCases() && (max_step_tokens == 60) != (plans_in_flight == 2)) {
          continue;
        }
        SCOPED_TRACE(Concat("pages of ", page_size, ", steps of ",
                            max_step_tokens, ", in flight ", plans_in_flight));
        ToyModel model(options);
        const SchedulerOptions scheduling = {.max_step_tokens = max_step_tokens,
                                             .validate_steps = true};
        ExpectSame(
            runner.Run(model, Twice(requests), scheduling, plans_in_flight),
            alone);
      }
    }
  }
}

TEST(EveryParamTest, TogetherIsAsAloneOfALanguageModel) {
  const std::shared_ptr<ThreadPool> threads = MakePool(2);
  const auto load = [&](int page_size) {
    TransformerOptions options;
    options.page_size = page_size;
    options.kv_cache_bytes = int64_t{64} << 20;
    return *TransformerModel::Load(SourcePath("models/en-fr"), options,
                                   threads);
  };
  const std::unique_ptr<TransformerModel> roomy = load(16);
  Runner runner(roomy->description());
  const std::vector<Request> requests = AllRequests(roomy->description());
  const std::vector<std::string> alone = runner.RunEachAlone(*roomy, requests);
  for (const int page_size : {1, 64}) {
    if (FewCases() && page_size == 64) continue;
    SCOPED_TRACE(page_size);
    const std::unique_ptr<TransformerModel> model = load(page_size);
    const int plans_in_flight = page_size == 1 ? 2 : 1;
    ExpectSame(runner.Run(*model, Twice(requests), {.max_step_tokens = 150},
                          plans_in_flight),
               alone);
  }
}

}  // namespace
}  // namespace espalier
