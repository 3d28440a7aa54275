// Validation and defaults of well-formed requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "request/request.h"
#include "tests/request/json/check_line.h"
#include "tests/request/json/malformed_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Check;
using ::espalier::testing::EnFr;
using ::espalier::testing::StatusIs;
using ::espalier::testing::WithParams;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ValidateRequestTest, CombinationsThatMeanSomethingPass) {
  for (const char* params : {
           R"({"do_sample": true, "n": 5, "best_of": 9, "temperature": 0.7})",
           R"({"do_sample": true, "n": 3, "temperature": 0})",
           R"({"temperature": 0, "seed": 7})",
           R"({"do_sample": true, "num_beams": 4, "n": 2, "top_p": 0.9})",
           R"({"stochastic": true, "num_beams": 4, "n": 4, "top_k": 50})",
           R"({"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 1})",
           R"({"num_beams": 4, "early_stopping": true, "patience": 2.5})",
           R"({"length_penalty": 2, "early_stopping": true})",
           R"({"n": 3, "do_sample": true, "early_stopping": true})",
           R"({"num_beams": 9, "allowed_sequences": [[7], [7, 8, 2]]})",
           R"({"ignore_eos": true, "allowed_sequences": [[7, 2, 8]]})",
           R"({"stop": ["a"], "include_stop": true, "min_tokens": 300})",
           R"({"logprobs": 64, "prompt_logprobs": 64})",
           R"({"logprobs": 0, "logprobs_mode": "processed_logprobs"})",
           R"({"logprobs_mode": "raw_logprobs"})",
           R"({"logprobs": 0, "legal_log_mass": true, "num_beams": 2,
               "constraint": {"regex": "a"}})",
           R"({"renormalize_logits": true, "do_sample": true})",
           R"({"exponential_decay_length_penalty": [0, 1.5], "n": 2,
               "num_beams": 2, "max_tokens": 100})",
           R"({"exponential_decay_length_penalty": [7, 0.1]})",
           R"({"sequence_bias": [[[7, 7], -3e38], [[7], 2]]})",
           R"({"speculate": "ngram:32:coupled"})",
           R"({"speculate": "suffix:1", "num_beams": 4})",
           R"({"speculate": false, "do_sample": true})",
           R"({"prefix_cache": true, "cache_salt": "a", "priority": -1})",
           R"({"prefix_cache": false, "cache_salt": ""})",
           R"({"priority": 4503599627370496})",
           R"({"deadline_ms": 1})",
           R"({"deadline_ms": 2147483647})",
           R"({"priority": -4503599627370496})",
       }) {
    EXPECT_OK(Check(testing::WithParams(params))) << params;
  }
}

TEST(ValidateRequestTest, NumbersThatJsonLacksAreRefusedToo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (double GenerationParams::*field :
       {&GenerationParams::length_penalty, &GenerationParams::patience,
        &GenerationParams::diversity_penalty, &GenerationParams::temperature,
        &GenerationParams::top_p, &GenerationParams::min_p,
        &GenerationParams::typical_p, &GenerationParams::repetition_penalty,
        &GenerationParams::frequency_penalty,
        &GenerationParams::presence_penalty}) {
    for (const double value : {nan, inf, -inf}) {
      Request request{{1, 4}, {}};
      request.params.num_beams = 4;
      request.params.early_stopping = EarlyStopping::kTrue;
      request.params.max_new_tokens = 1;
      request.params.*field = value;
      EXPECT_EQ(ValidateRequest(EnFr(), &request).code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(ValidateRequestTest, AllowedSequencesSetTheLength) {
  Request request{{1, 4}, {}};
  request.params.allowed_sequences = {{7, 8, 9}, {7}};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_THAT(request.params.max_new_tokens, Optional(3));
}

TEST(ValidateRequestTest, OptionsOfAConstraintNeedTheirKindOfLanguage) {
  const auto error = [](ConstraintParams constraint) {
    Request request{{1, 4}, {}};
    request.params.constraint = std::move(constraint);
    return Message(ValidateRequest(EnFr(), &request));
  };
  EXPECT_EQ(error({.json_schema = "{}",
                   .has_spaces = false,
                   .disable_additional_properties = true}),
            "");
  EXPECT_EQ(error({.items = "songs",
                   .exclude = {std::string("a")},
                   .exclude_prefixes = {{7}}}),
            "");
  for (const ConstraintParams& kind :
       {ConstraintParams{.regex = "a"}, ConstraintParams{.items = "songs"},
        ConstraintParams{.must_contain = {"a"}}}) {
    ConstraintParams params = kind;
    params.disable_additional_properties = true;
    EXPECT_EQ(error(params),
              "constraint.disable_additional_properties must be false without "
              "a schema, got true");
    params = kind;
    params.has_spaces = false;
    EXPECT_EQ(error(params),
              "constraint.has_spaces must be true without a schema, got false");
    params = kind;
    params.whitespace = " ";
    EXPECT_EQ(
        error(params),
        "constraint.whitespace must be unset without a schema, got \" \"");
  }
  EXPECT_EQ(error({.json_schema = "{}", .exclude = {std::string("a")}}),
            "constraint.exclude must be empty without items, got 1 item");
  EXPECT_EQ(error({.regex = "a", .exclude_prefixes = {{7}, {8}}}),
            "constraint.exclude_prefixes must be empty without items, got 2 "
            "prefixes");
}

TEST(ValidateRequestTest, BiasesAreSortedAndNameATokenOnce) {
  Request request{{1, 4}, {}};
  request.params.logit_bias = {{9, 1.0}, {7, 2.0}};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_THAT(request.params.logit_bias,
              ElementsAre(Pair(7, 2.0), Pair(9, 1.0)));
  request.params.logit_bias = {{9, 1.0}, {7, 2.0}, {9, 3.0}};
  EXPECT_THAT(ValidateRequest(EnFr(), &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "logit_bias must name each token once, got 9 twice"));
}

TEST(ValidateRequestTest, WhatOnlyAHostSelectsByIsRefusedElsewhere) {
  ModelDescription model = EnFr();
  model.selects_on_host = false;
  const auto check = [&](const char* params) {
    RequestLine line = ParseRequestLine(WithParams(params));
    EXPECT_OK(line.body);
    Request request{{1, 4}, line.body->params};
    return Message(ValidateRequest(model, &request));
  };
  EXPECT_EQ(check(R"({"num_beams": 2, "renormalize_logits": true,
                      "do_sample": true})"),
            "do_sample must be false with renormalize_logits where a GPU "
            "selects, got true");
  EXPECT_EQ(check(R"({"renormalize_logits": true, "repetition_penalty": 1.5})"),
            "repetition_penalty must be 1 with renormalize_logits where a GPU "
            "selects, got 1.5");
  EXPECT_EQ(check(R"({"renormalize_logits": true,
                      "speculate": {"method": "ngram"}})"),
            "speculate.method must be \"off\" with renormalize_logits where a "
            "GPU selects, got \"ngram\"");
  EXPECT_EQ(check(R"({"renormalize_logits": true, "logit_bias": {"7": 1}})"),
            "logit_bias must be unset with renormalize_logits where a GPU "
            "selects, got a value");
  EXPECT_EQ(check(R"({"sequence_bias": [[[7], 1], [[8, 9], 1]]})"),
            "sequence_bias must be of single tokens where a GPU selects, got "
            "one of 2");
  EXPECT_EQ(check(R"({"logprobs": 1, "legal_log_mass": true,
                      "allowed_sequences": [[5]]})"),
            "legal_log_mass must be false where a GPU selects, got true");
  EXPECT_EQ(check(R"({"logprobs": 1, "logprobs_mode": "processed_logprobs"})"),
            "logprobs_mode must be raw_logprobs where a GPU selects, got "
            "processed_logprobs");
  for (
      const char* params :
      {R"({"renormalize_logits": true, "stochastic": true, "num_beams": 2,
            "repetition_penalty": 1.5})",
       R"({"renormalize_logits": true, "num_beams": 2, "bad_words_ids": [[5, 6]]})",
       R"({"renormalize_logits": true, "do_sample": true, "best_of": 3})",
       R"({"sequence_bias": [[[7], 1]], "begin_suppress_tokens": 9})",
       R"({"exponential_decay_length_penalty": [3, 1.1]})"}) {
    EXPECT_EQ(check(params), "") << params;
  }
}

TEST(ValidateRequestTest, SeedsThatAreDrawnAreNumbersOfJavaScript) {
  for (int i = 0; i < 100; ++i) {
    Request request{{1, 4}, {}};
    request.params.do_sample = true;
    GiveSeed(&request);
    ASSERT_TRUE(request.params.seed.has_value());
    EXPECT_LT(*request.params.seed, uint64_t{1} << 53);
  }
}

TEST(ValidateRequestTest, DefaultsAreTheFormats) {
  RequestLine line = ParseRequestLine(R"({"prompt_tokens": [1, 4, 5]})");
  ASSERT_OK(line.body);
  EXPECT_EQ(line.id, "");
  Request request{line.body->prompt_tokens, line.body->params};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_EQ(request.params.num_beams, 1);
  EXPECT_EQ(request.params.num_return_sequences, 1);
  EXPECT_EQ(request.params.length_penalty, 1.0);
  EXPECT_EQ(request.params.early_stopping, EarlyStopping::kFalse);
  EXPECT_THAT(request.params.max_new_tokens, Optional(256));
  EXPECT_THAT(request.params.eos_token_id, Optional(ElementsAre(2)));
  EXPECT_TRUE(request.params.prefix_cache);
  EXPECT_EQ(request.params.cache_salt, "");
  EXPECT_EQ(request.params.priority, 0);
}

TEST(ValidateRequestTest, NamesHaveTheirLimitInBytes) {
  const std::pair<const char*, std::string GenerationParams::*> fields[] = {
      {"cache_salt", &GenerationParams::cache_salt},
      {"start_after", &GenerationParams::start_after},
      {"tenant", &GenerationParams::tenant}};
  for (const auto& [field, member] : fields) {
    Request request{{1, 4}, {}};
    std::string& name = request.params.*member;
    name = std::string(256, 's');
    EXPECT_OK(ValidateRequest(EnFr(), &request));
    // 86 characters, 258 bytes.
    name.clear();
    for (int i = 0; i < 86; ++i) name += "\u20ac";
    const absl::Status long_name = ValidateRequest(EnFr(), &request);
    EXPECT_THAT(long_name,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         StartsWith(Concat(field,
                                           " must have at most 256 bytes, got "
                                           "258: \"\u20ac"))));
    EXPECT_LE(long_name.message().size(), 150u);
    // JSON has none of these.
    name = "\xff";
    EXPECT_THAT(ValidateRequest(EnFr(), &request),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         Concat(field, " is not UTF-8")));
  }
}

TEST(ValidateRequestTest, AnUnsetMaxNewTokensIsWhatTheContextLeaves) {
  Request request{std::vector<TokenId>(1000, 7), {}};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_THAT(request.params.max_new_tokens, Optional(24));
  request = {std::vector<TokenId>(1024, 7), {}};
  EXPECT_THAT(
      ValidateRequest(EnFr(), &request),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "the prompt has 1024 tokens, which leaves no room in the "
               "model's context of 1024"));
}

TEST(ValidateRequestTest, EosIdsCountOnce) {
  Request request{{1}, {}};
  request.params.eos_token_id = {{9, 2, 9}};
  ASSERT_OK(ValidateRequest(EnFr(), &request));
  EXPECT_THAT(request.params.eos_token_id, Optional(ElementsAre(2, 9)));
}

TEST(ValidateRequestTest, WhatAnExecutorHasNoRoomForIsNamed) {
  ModelDescription model = EnFr();
  model.limits.max_beams = 16;
  model.limits.max_eos_token_ids = 3;
  Request request{{1, 4}, {}};
  request.params.num_beams = 16;
  request.params.eos_token_id = {{9, 2, 9, 5}};
  EXPECT_OK(ValidateRequest(model, &request));
  request.params.num_beams = 17;
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_beams must be at most 16 (max_beams, what a step "
                       "has room for), got 17"));
  request.params.num_beams = 2;
  request.params.eos_token_id = {{9, 2, 5, 7}};
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "eos_token_id must have at most 3 ids (what a step has "
                       "room for), got 4"));
  request.params.eos_token_id = {{9, 2}};
  request.params.stop_token_ids = {5, 9};
  EXPECT_OK(ValidateRequest(model, &request));
  request.params.stop_token_ids = {5, 9, 7};
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "eos_token_id and stop_token_ids must have at most 3 "
                       "ids (what a step has room for), got 4"));
  request.params.ignore_eos = true;
  EXPECT_OK(ValidateRequest(model, &request));
  request = {{1, 4}, {}};
  request.params.do_sample = true;
  request.params.num_return_sequences = 17;
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_return_sequences must be at most 16 (max_beams, "
                       "what a step has room for), got 17"));
  request.params.num_return_sequences = 1;
  request.params.best_of = 17;
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "best_of must be at most 16 (max_beams, what a step "
                       "has room for), got 17"));
}

// However many prompts a call has, its lists are checked and sorted once.
TEST(ValidateRequestTest, RequestsOfOneCallShareItsLists) {
  GenerationParams call;
  for (int64_t i = 300; i > 4; --i) {
    call.bad_words_ids.push_back({i, 5});
    call.suppress_tokens.push_back(i);
    call.logit_bias.push_back({i, 1.0});
  }
  call.allowed_token_ids = {9, 8, 7};
  call.stop_token_ids = {6, 5};
  call.stop = {"a"};
  const auto ids_of = [](const GenerationParams& params) {
    return std::vector<int64_t>{
        params.bad_words_ids.id(),      params.suppress_tokens.id(),
        params.logit_bias.id(),         params.stop.id(),
        params.allowed_token_ids->id(), params.stop_token_ids.id()};
  };
  Request first{{1, 4}, call}, second{{1, 5, 6}, call};
  ASSERT_OK(ValidateRequest(EnFr(), &first));
  ASSERT_OK(ValidateRequest(EnFr(), &second));
  EXPECT_THAT(first.params.allowed_token_ids, Optional(ElementsAre(7, 8, 9)));
  EXPECT_EQ(ids_of(first.params), ids_of(second.params));
  // Values that are set do not change.
  Request again{{1, 7}, first.params};
  ASSERT_OK(ValidateRequest(EnFr(), &again));
  EXPECT_EQ(ids_of(again.params), ids_of(first.params));
  // A list that has passed for one vocabulary has not for a smaller one.
  ModelDescription smaller = EnFr();
  smaller.vocab_size = 300;
  EXPECT_THAT(
      ValidateRequest(smaller, &again),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("logit_bias must name token ids in [0, 300)")));
}

}  // namespace
}  // namespace espalier
