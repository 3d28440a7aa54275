// The request field `speculate`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "request/json/request_json.h"
#include "request/param_fields.h"
#include "request/read_speculation.h"
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
using ::testing::HasSubstr;

TEST(SpeculationJsonTest, SpeculateHasItsShortForms) {
  using enum SpeculationMethod;
  using enum SpeculationMode;
  struct Form {
    const char* json;
    SpeculationParams params;
  };
  for (const Form& form : {
           Form{R"({"method": "draft", "num_tokens": null, "mode": null})",
                SpeculationParams{kDraft, 5, kCoupled}},
           Form{"false", SpeculationParams{kNone, 5, kCoupled}},
           Form{R"("off")", SpeculationParams{kNone, 5, kCoupled}},
           Form{R"({"method": "off"})", SpeculationParams{kNone, 5, kCoupled}},
           Form{R"("ngram")", SpeculationParams{kNgram, 5, kCoupled}},
           Form{R"("draft:9")", SpeculationParams{kDraft, 9, kCoupled}},
           Form{R"("suffix:3:rejection")",
                SpeculationParams{kSuffix, 3, kRejection}},
           Form{R"("ngram::rejection")",
                SpeculationParams{kNgram, 5, kRejection}},
           Form{R"({"method": "ngram"})",
                SpeculationParams{kNgram, 5, kCoupled}},
           Form{R"({"mode": 5, "m\u0065thod": "draft", "mode": "rejection"})",
                SpeculationParams{kDraft, 5, kRejection}},
       }) {
    SCOPED_TRACE(form.json);
    const RequestLine line = ParseRequestLine(
        WithParams(Concat(R"({"speculate": )", form.json, "}")));
    ASSERT_OK(line.body);
    EXPECT_EQ(line.body->params.speculate, form.params);
    // As the command line has it: a value that is parsed already.
    ASSERT_OK_AND_ASSIGN(const json::value value, ParseJson(form.json));
    GenerationParams params;
    ASSERT_OK(SetParam("speculate", value, &params));
    EXPECT_EQ(params.speculate, form.params);
  }
}

TEST(SpeculationJsonTest, DraftsNeedAModelWhoseStateIsInPages) {
  ModelDescription model = EnFr();
  model.has_shareable_pages = false;
  Request request{{1, 4}, {}};
  request.params.speculate = {SpeculationMethod::kNgram};
  EXPECT_THAT(
      ValidateRequest(model, &request),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("more of a sequence than pages, got \"ngram\"")));
  request.params.speculate = {SpeculationMethod::kNone};
  EXPECT_OK(ValidateRequest(model, &request));
}

TEST(SpeculationJsonTest, BeamsThatAreDrawnOrDiverseDoNotSpeculate) {
  for (const char* params :
       {R"({"speculate": "ngram", "num_beams": 4, "do_sample": true})",
        R"({"speculate": "ngram", "num_beams": 4, "stochastic": true})",
        R"({"speculate": "ngram", "num_beams": 4, "num_beam_groups": 2})"}) {
    EXPECT_THAT(
        Check(WithParams(params)),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            "speculate.method must be \"off\" with do_sample, "
            "stochastic or num_beam_groups beside num_beams, got \"ngram\""))
        << params;
  }
}

TEST(SpeculationJsonTest, ADraftModelIsNeededToDraftWithIt) {
  ModelDescription model = EnFr();
  model.limits.max_drafted_length = std::numeric_limits<int>::max();
  Request request{{1, 4}, {}};
  request.params.speculate = {SpeculationMethod::kDraft};
  EXPECT_OK(ValidateRequest(model, &request));
  EXPECT_THAT(ValidateRequest(EnFr(), &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "speculate.method must be \"ngram\", \"suffix\", "
                       "\"constraint\" or \"off\" without a "
                       "draft model, got \"draft\""));
}

TEST(SpeculationJsonTest, DraftsOfAConstraintAreForSamplesThatHaveOne) {
  Request request{{1, 4}, {}};
  request.params.speculate = {SpeculationMethod::kConstraint};
  EXPECT_THAT(ValidateRequest(EnFr(), &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "speculate.method must not be \"constraint\" without "
                       "constraint or allowed_sequences, got \"constraint\""));
  request.params.constraint = {.regex = "[0-9]+"};
  EXPECT_OK(ValidateRequest(EnFr(), &request));
  Request sequences{{1, 4}, {}};
  sequences.params.speculate = request.params.speculate;
  sequences.params.allowed_sequences = {{5, 6}, {7}};
  EXPECT_OK(ValidateRequest(EnFr(), &sequences));
  request.params.num_beams = 2;
  EXPECT_THAT(ValidateRequest(EnFr(), &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "speculate.method must not be \"constraint\" with "
                       "num_beams: beams draft nothing of a constraint, got "
                       "\"constraint\""));
  for (const SpeculationMethod method :
       {SpeculationMethod::kNgram, SpeculationMethod::kSuffix}) {
    request.params.speculate = {method};
    EXPECT_OK(ValidateRequest(EnFr(), &request));
  }
}

// Options have no fields, so an error in a part names the option.
TEST(SpeculationJsonTest, PartsAreNamedByTheFieldOrTheOption) {
  struct Wrong {
    const char* json;
    const char* part;
    const char* message;
  };
  for (const Wrong& wrong : {
           Wrong{R"("guess:5")", "method", "\"off\", got \"guess\""},
           Wrong{R"(":5")", "method", "got \"\""},
           Wrong{R"("ngram:")", "num_tokens", "an integer, got \"\""},
           Wrong{R"("ngram:x")", "num_tokens", "an integer, got \"x\""},
           Wrong{R"("ngram:5:")", "mode", "\"coupled\", got \"\""},
           Wrong{R"("ngram::both")", "mode", "\"coupled\", got \"both\""},
           Wrong{R"({"method": 5})", "method", ", got 5"},
       }) {
    SCOPED_TRACE(wrong.json);
    std::optional<SpeculationParams> params;
    for (const auto& [field, name] :
         {std::pair("speculate", "speculate."),
          std::pair("--speculate", "--speculate: ")}) {
      EXPECT_THAT(
          ReadSpeculation(field, JsonText{wrong.json}, &params),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   ::testing::AllOf(::testing::StartsWith(
                                        Concat(name, wrong.part, " must be ")),
                                    ::testing::EndsWith(wrong.message))));
    }
  }
}

// As other servers have it.
TEST(SpeculationJsonTest, KeysOfOthersAreHintedAt) {
  const std::pair<const char*, const char*> cases[] = {
      {"num_speculative_tokens", "; did you mean num_tokens?"},
      {"num_token", "; did you mean num_tokens?"},
      {"model",
       "; the draft model is loaded with the target, and \"draft\" is the "
       "method that drafts by it"},
      {"banana", ""},
  };
  for (const auto& [key, hint] : cases) {
    EXPECT_THAT(
        ParseRequestLine(
            WithParams(Concat(R"({"speculate": {")", key, R"(": 1}})")))
            .body.status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 Concat("speculate must have no field \"", key, '"', hint)));
  }
}

TEST(SpeculationJsonTest, NothingStandsBesideOff) {
  for (const auto& [json, message] :
       {std::pair(R"("off:5")",
                  "speculate.num_tokens must be left out with method \"off\", "
                  "got 5"),
        std::pair(R"({"method": "off", "mode": "coupled"})",
                  "speculate.mode must be left out with method \"off\", got "
                  "\"coupled\""),
        std::pair(R"("none")",
                  "speculate.method must be \"ngram\", \"suffix\", "
                  "\"constraint\", \"draft\" or "
                  "\"off\", got \"none\"")}) {
    const absl::Status line =
        ParseRequestLine(WithParams(Concat(R"({"speculate": )", json, "}")))
            .body.status();
    EXPECT_THAT(line, StatusIs(absl::StatusCode::kInvalidArgument, message));
    ASSERT_OK_AND_ASSIGN(const json::value value, ParseJson(json));
    GenerationParams params;
    EXPECT_EQ(SetParam("speculate", value, &params), line);
  }
}

// JSON has none of these.
TEST(SpeculationJsonTest, WithoutSpeculationItsOptionsMeanNothing) {
  Request request{{1, 4}, {}};
  request.params.speculate = {SpeculationMethod::kNone, 6};
  EXPECT_THAT(ValidateRequest(EnFr(), &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "speculate.num_tokens must be 5 with speculate.method "
                       "\"off\", got 6"));
  request.params.speculate = {.mode = SpeculationMode::kRejection};
  EXPECT_THAT(ValidateRequest(EnFr(), &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "speculate.mode must be coupled with "
                       "speculate.method \"off\", got rejection"));
}

}  // namespace
}  // namespace espalier
