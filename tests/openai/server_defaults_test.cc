// The defaults of a server, and the calls that leave them open.
#include "openai/server_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/status.h"
#include "openai/resolve_params.h"
#include "tests/status_matchers.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

ModelDescription ModelOfDefaults() {
  return {.vocab_size = 100,
          .max_context = 1000,
          .eos_token_ids = {2},
          .num_pages = 1000,
          .page_size = 16};
}

ServerDefaults Defaults(const std::string& json) {
  const auto defaults = ServerDefaults::Read(json);
  EXPECT_OK(defaults) << json;
  EXPECT_OK(defaults->Check(ModelOfDefaults())) << json;
  return *defaults;
}

// Returns the params of a completion with these fields on a server with these
// defaults.
ResolvedParams ResolveWith(const std::string& defaults,
                           const std::string& fields) {
  const absl::StatusOr<Call> call = ReadCall(
      Api::kCompletions,
      R"({"prompt": "a")" + (fields.empty() ? "" : ", " + fields) + "}");
  EXPECT_OK(call) << fields;
  ResolvedParams resolved =
      ResolveParams(*call, Defaults(defaults), {}, ModelOfDefaults(), 10);
  GenerationParams checked = resolved.params;
  EXPECT_OK(ValidateParams(ModelOfDefaults(), 10, &checked))
      << defaults << fields;
  return resolved;
}

TEST(ServerDefaultsTest, AreTheSameInEveryOrder) {
  std::vector<std::string> fields = {
      R"("use_beam_search": true)", R"("best_of": 4)",
      R"("length_penalty": 0.6)", R"("min_tokens": 2)"};
  std::ranges::sort(fields);
  do {
    const std::string json = Concat("{", fields[0], ", ", fields[1], ", ",
                                    fields[2], ", ", fields[3], "}");
    EXPECT_THAT(Defaults(json).values(),
                UnorderedElementsAre(
                    Pair("num_beams", "4"), Pair("do_sample", "false"),
                    Pair("length_penalty", "0.6"), Pair("min_new_tokens", "2")))
        << json;
    const GenerationParams params = ResolveWith(json, "").params;
    EXPECT_EQ(params.num_beams, 4) << json;
    EXPECT_EQ(params.length_penalty, 0.6) << json;
    EXPECT_EQ(params.min_new_tokens, 2) << json;
  } while (std::ranges::next_permutation(fields).found);
}

TEST(ServerDefaultsTest, ManyAnswersAreSamplesWhereNothingElseIsSaid) {
  const GenerationParams params = ResolveWith(R"({"n": 3})", "").params;
  EXPECT_TRUE(params.do_sample);
  EXPECT_EQ(params.num_return_sequences, 3);
  const auto greedy = ServerDefaults::Read(R"({"n": 3, "do_sample": false})");
  ASSERT_OK(greedy);
  EXPECT_THAT(greedy->Check(ModelOfDefaults()),
              StatusIs(kInvalid, HasSubstr("n must be 1 in greedy")));
}

TEST(ServerDefaultsTest, HaveTheLimitsOfTheServer) {
  Limits limits;
  limits.max_num_beams = limits.max_choices = 2000;
  limits.max_stop = 1;
  EXPECT_OK(ServerDefaults::Read(R"({"num_beams": 1500})", limits));
  EXPECT_THAT(ServerDefaults::Read(R"({"num_beams": 2001})", limits),
              StatusIs(kInvalid,
                       "num_beams must be in [1, 2000] (--max-num-beams), got "
                       "2001"));
  EXPECT_THAT(ServerDefaults::Read(R"({"stop": ["a", "b"]})", limits),
              StatusIs(kInvalid, HasSubstr("(--max-stop), got 2")));
  limits.max_choices = 2;
  EXPECT_OK(ServerDefaults::Read(R"({"num_beams": 2})", limits));
  for (const char* const name : {"num_beams", "num_return_sequences"}) {
    EXPECT_EQ(
        Message(ServerDefaults::Read(Concat(R"({")", name, R"(": 4})"), limits)
                    .status()),
        Concat(name, " must be in [1, 2] (--max-choices), got 4"));
  }
}

// Params are top-level fields there, not in an object "params".
TEST(ServerDefaultsTest, FieldsStandAtTheTopLevel) {
  const auto message = [](const std::string& json) {
    return Message(ServerDefaults::Read(json).status());
  };
  for (const char* const name : {"params", "sampling_params", "extra_body"}) {
    EXPECT_EQ(message(Concat(R"({")", name, R"(": {"num_beams": 2}})")),
              Concat("unknown field \"", name,
                     "\"; its fields stand at the top level"));
  }
  for (const char* const name : {"messages", "prompt_tokens", "inputs",
                                 "token_ids", "documents", "output_mode"}) {
    EXPECT_EQ(message(Concat(R"({")", name, R"(": []})")),
              Concat(name, " must not have a default"));
  }
  EXPECT_EQ(message(R"({"prompt": "a"})"),
            "prompt must not have a default, got \"a\"");
  EXPECT_EQ(message(R"({"beam_size": 2})"),
            "unknown field \"beam_size\"; did you mean num_beams?");
}

TEST(ServerDefaultsTest, NoTokensAreNoDefault) {
  EXPECT_THAT(ServerDefaults::Read(R"({"max_tokens": 0})"),
              StatusIs(kInvalid,
                       "max_tokens must be in [1, 1073741824] "
                       "(--max-tokens-limit), got 0"));
}

TEST(ServerDefaultsTest, NegativeSeeds) {
  const auto seed = [](const std::string& defaults, const std::string& fields) {
    return ResolveWith(defaults, fields).params.seed;
  };
  EXPECT_EQ(seed(R"({"seed": 7})", ""), 7);
  EXPECT_EQ(seed(R"({"seed": 7})", R"("seed": -5)"), ~uint64_t{4});
  EXPECT_EQ(seed(R"({"seed": 7})", R"("seed": -1)"), std::nullopt);
  EXPECT_EQ(seed(R"({"seed": -5})", ""), ~uint64_t{4});
  EXPECT_EQ(seed(R"({"seed": -5})", R"("seed": 7)"), 7);
  EXPECT_THAT(Defaults(R"({"seed": -1})").values(), IsEmpty());
  EXPECT_THAT(ResolveWith(R"({"seed": -5})", "").defaults,
              ElementsAre(Pair("seed", "18446744073709551611")));
}

TEST(ServerDefaultsTest, StopsAreIncludedWhereThereAreStops) {
  const auto includes = [](const std::string& defaults,
                           const std::string& fields) {
    return ResolveWith(defaults, fields).params.include_stop;
  };
  for (const char* name : {"include_stop_str_in_output", "include_stop"}) {
    const std::string field = Concat('"', name, "\": ");
    const std::string on = Concat("{", field, "true}");
    EXPECT_TRUE(includes(on, R"("stop": "x")")) << name;
    EXPECT_FALSE(includes(on, "")) << name;
    EXPECT_FALSE(includes(on, R"("stop": "x", )" + field + "false")) << name;
    EXPECT_THAT(ResolveWith(on, "").defaults, IsEmpty());
    const std::string with_stop = Concat("{", field, R"(true, "stop": "y"})");
    EXPECT_TRUE(includes(with_stop, "")) << name;
    EXPECT_FALSE(includes(with_stop, R"("stop": [])")) << name;
    EXPECT_TRUE(includes(R"({"stop": "y"})", field + "true")) << name;
  }
  EXPECT_FALSE(includes("{}", R"("include_stop_str_in_output": true)"));
  EXPECT_THAT(
      ReadCall(Api::kCompletions,
               R"({"prompt": "a", "stop": "x", "include_stop": false,
                   "include_stop_str_in_output": true})"),
      StatusIs(kInvalid,
               "include_stop and include_stop_str_in_output are the same "
               "field, got false and true"));
}

}  // namespace
}  // namespace espalier::openai
