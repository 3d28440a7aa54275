// Params of a call: its own fields, then defaults.
#include "openai/resolve_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/page_count.h"
#include "base/status.h"
#include "openai/server_defaults.h"
#include "openai/settle_call.h"
#include "pages/page_table.h"
#include "request/json/generation_config.h"
#include "tests/status_matchers.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

ModelDescription Model() {
  return {.vocab_size = 100,
          .max_context = 1000,
          .eos_token_ids = {2},
          .num_pages = 1000,
          .page_size = 16};
}

struct Sources {
  std::string server = {};
  std::string model = "{}";
  Api api = Api::kCompletions;
};

ResolvedParams Resolve(const std::string& fields, const Sources& sources = {}) {
  const std::string inputs =
      sources.api == Api::kCompletions ? R"("prompt": "a")"
      : sources.api == Api::kChat
          ? R"("messages": [{"role": "user", "content": "a"}])"
          : R"("token_ids": [1])";
  const absl::StatusOr<Call> call =
      ReadCall(sources.api,
               Concat("{", inputs, fields.empty() ? "" : ", ", fields, "}"));
  EXPECT_OK(call);
  ServerDefaults server;
  if (!sources.server.empty()) {
    const auto read = ServerDefaults::Read(sources.server);
    EXPECT_OK(read);
    EXPECT_OK(read->Check(Model()));
    server = *read;
  }
  const auto model =
      ReadGenerationDefaults(ParseJson(sources.model)->get_object(),
                             "generation_config.json", DefaultsOf::kModel);
  EXPECT_OK(model);
  ResolvedParams resolved = ResolveParams(*call, server, *model, Model(), 10);
  GenerationParams checked = resolved.params;
  EXPECT_OK(ValidateParams(Model(), 10, &checked)) << fields;
  return resolved;
}

TEST(ResolveParamsTest, ACallThatSaysNothingDrawsAtTemperatureOne) {
  const ResolvedParams resolved = Resolve("");
  EXPECT_TRUE(resolved.params.do_sample);
  EXPECT_EQ(resolved.params.temperature, 1.0);
  EXPECT_EQ(resolved.params.num_beams, 1);
  EXPECT_EQ(resolved.params.max_new_tokens, 16);
  EXPECT_THAT(resolved.defaults, IsEmpty());
}

TEST(ResolveParamsTest, ASearchSaysWhatOfTheModelsDefaultsItLeavesOut) {
  const auto defaults = ReadGenerationDefaults(
      ParseJson(R"({"do_sample": true, "top_k": 20})")->get_object(),
      "DIR/generation_config.json", DefaultsOf::kModel);
  ASSERT_OK(defaults);
  const auto warning = [&](const std::string& fields) {
    const absl::StatusOr<Call> call =
        ReadCall(Api::kCompletions, Concat(R"({"prompt": "a", )", fields, "}"));
    EXPECT_OK(call);
    EXPECT_EQ(ResolveParams(*call, {}, *defaults, Model(), 10).params.do_sample,
              SearchWarning(*call, *defaults).empty())
        << fields;
    return SearchWarning(*call, *defaults);
  };
  const std::string rest =
      " asks for the search: do_sample true and top_k 20 of "
      "DIR/generation_config.json are left out; do_sample true draws beams";
  EXPECT_EQ(warning(R"("num_beams": 4)"), "num_beams" + rest);
  EXPECT_EQ(warning(R"("use_beam_search": true, "n": 3)"),
            "use_beam_search" + rest);
  EXPECT_EQ(warning(R"("num_beams": 4, "do_sample": true)"), "");
  EXPECT_EQ(warning(R"("n": 3)"), "");
}

TEST(ResolveParamsTest, FieldsWithoutEffectHaveAWarning) {
  const auto warning = [](const std::string& fields) {
    const absl::StatusOr<Call> call =
        ReadCall(Api::kCompletions, Concat(R"({"prompt": "a", )", fields, "}"));
    EXPECT_OK(call);
    return absl::StrJoin(
        IdleWarnings(*call, ResolveParams(*call, {}, {}, Model(), 10).params),
        "; ");
  };
  EXPECT_EQ(warning(R"("length_penalty": 2.0, "early_stopping": true)"),
            "length_penalty and early_stopping have no effect with one beam; "
            "num_beams 2 or more gives them one");
  EXPECT_EQ(warning(R"("length_penalty": 1.0)"), "");
  EXPECT_EQ(warning(R"("length_penalty": 2.0, "num_beams": 2)"), "");
  EXPECT_EQ(warning(R"("num_beams": 4, "num_beam_groups": 2)"),
            "without diversity_penalty all 2 groups of num_beam_groups find "
            "the same beams");
  EXPECT_EQ(warning(R"("temperature": 0, "top_k": 3, "top_p": 0.5)"),
            "top_k and top_p have no effect with temperature 0");
  EXPECT_EQ(warning(R"("temperature": 0.5, "top_k": 3)"), "");
  EXPECT_EQ(warning(R"("num_beams": 2, "speculate": "ngram:3:rejection")"),
            "mode rejection of speculate has no effect where nothing is "
            "sampled");
  EXPECT_EQ(warning(R"("speculate": "ngram:3:rejection")"), "");
}

TEST(ResolveParamsTest, ChatsGenerateWhatThereIsRoomFor) {
  EXPECT_EQ(Resolve("", {.api = Api::kChat}).params.max_new_tokens, 990);
  EXPECT_EQ(Resolve("", {.api = Api::kTokens}).params.max_new_tokens, 990);
  EXPECT_EQ(
      Resolve(R"("max_tokens": 7)", {.api = Api::kChat}).params.max_new_tokens,
      7);
  // 16,000 tokens of pages for 100 beams.
  const int64_t of_beams = *Resolve(R"("num_beams": 100)", {.api = Api::kChat})
                                .params.max_new_tokens;
  EXPECT_GT(of_beams, 100);
  EXPECT_LT(of_beams, 160);
}

// Then it is the prompt that is to be shorter.
TEST(ResolveParamsTest, APromptThatNoPagesHoldLeavesNothingToTell) {
  ModelDescription model = Model();
  model.num_pages = 12;
  const auto call = ReadCall(Api::kCompletions, R"({"prompt": "a"})");
  ASSERT_OK(call);
  const ResolvedParams resolved = ResolveParams(
      *call, {}, {}, model, /*num_prompt_tokens=*/12 * model.page_size + 1);
  EXPECT_EQ(resolved.params.max_new_tokens, 1);
  EXPECT_THAT(resolved.defaults, IsEmpty());
}

// The limit is that of the engine, and the error names the pages if they are
// the limit.
TEST(ResolveParamsTest, WhatIsLeftOpenIsCutToAllPagesAndNoFurther) {
  constexpr int64_t kPrompt = 20;
  ModelDescription decoder = Model();
  decoder.num_pages = 12;
  ModelDescription with_encoder = decoder;
  with_encoder.encoder = {.max_source_tokens = 100, .decoder_prompt = {3}};
  for (const ModelDescription& model : {decoder, with_encoder}) {
    const int64_t shared = model.encoder ? 32 + 1 : kPrompt;
    for (const Api api : {Api::kCompletions, Api::kTokens}) {
      const bool is_text = api == Api::kCompletions;
      for (int64_t width = 1; width <= 12; ++width) {
        const std::string fields =
            Concat(is_text ? R"({"prompt": "a")" : R"({"token_ids": [1])",
                   is_text ? "" : R"(, "sampling_params": {"n": 1)",
                   R"(, "num_beams": )", width, is_text ? "}" : "}}");
        const auto call = ReadCall(api, fields);
        ASSERT_OK(call) << fields;
        const ResolvedParams resolved =
            ResolveParams(*call, {}, {}, model, kPrompt);
        const int64_t length = *resolved.params.max_new_tokens;
        const auto fits = [&](int64_t some) {
          return WorstCasePages(shared, shared + some - 1,
                                some == 1 ? 1 : width,
                                model.page_size) <= model.num_pages;
        };
        EXPECT_TRUE(fits(length)) << fields;
        if (is_text && fits(16)) {
          EXPECT_EQ(length, 16) << fields;
          EXPECT_THAT(resolved.defaults, IsEmpty()) << fields;
        } else {
          EXPECT_FALSE(fits(length + 1)) << fields;
          EXPECT_THAT(resolved.defaults,
                      ElementsAre(Pair("max_new_tokens", Concat(length))))
              << fields;
        }
      }
    }
  }
}

TEST(ResolveParamsTest, TemperatureZeroIsGreedy) {
  const GenerationParams params = Resolve(R"("temperature": 0)").params;
  EXPECT_FALSE(DrawsAtRandom(params));
  EXPECT_EQ(Resolve(R"("temperature": 0, "n": 2, "top_p": 0.9)")
                .params.num_return_sequences,
            2);
}

TEST(ResolveParamsTest, BeamsDrawNothing) {
  for (const char* fields :
       {R"("use_beam_search": true, "n": 4)", R"("num_beams": 4)",
        R"("num_beams": 4, "temperature": 0)",
        R"("num_beams": 4, "temperature": 1, "top_p": 1)",
        R"("stochastic": true, "num_beams": 4)"}) {
    for (const char* model : {"{}", R"({"do_sample": true, "top_p": 0.5})"}) {
      const GenerationParams params = Resolve(fields, {.model = model}).params;
      EXPECT_EQ(params.num_beams, 4) << fields;
      EXPECT_FALSE(params.do_sample) << fields << model;
    }
  }
  EXPECT_TRUE(Resolve(R"("num_beams": 4, "do_sample": true)").params.do_sample);
}

TEST(ResolveParamsTest, TheModelsBeamsAreTakenWhereACallIsOpen) {
  const Sources translator = {.model = R"({"num_beams": 4})"};
  const ResolvedParams open = Resolve("", translator);
  EXPECT_EQ(open.params.num_beams, 4);
  EXPECT_FALSE(open.params.do_sample);
  EXPECT_THAT(open.defaults, ElementsAre(Pair("num_beams", "4")));
  EXPECT_EQ(Resolve(R"("temperature": 0)", translator).params.num_beams, 4);
  EXPECT_EQ(Resolve(R"("n": 3)", translator).params.num_beams, 4);
  EXPECT_EQ(Resolve(R"("n": 6)", translator).params.num_beams, 6);
  EXPECT_FALSE(Resolve(R"("n": 6)", translator).params.do_sample);
  for (const char* draws :
       {R"("temperature": 0.5)", R"("top_p": 0.5)", R"("do_sample": true)",
        R"("best_of": 3, "n": 2)", R"("top_k": 5)", R"("min_p": 0.1)"}) {
    const GenerationParams params = Resolve(draws, translator).params;
    EXPECT_EQ(params.num_beams, 1) << draws;
    EXPECT_TRUE(params.do_sample) << draws;
  }
  EXPECT_EQ(Resolve(R"("do_sample": false)", translator).params.num_beams, 4);
  EXPECT_EQ(Resolve(R"("use_beam_search": false)", translator).params.num_beams,
            1);
}

TEST(ResolveParamsTest, WhoRefusesBeamsGetsDrawsWhereverBeamsAreTheDefault) {
  for (const Sources& beams : {Sources{.model = R"({"num_beams": 4})"},
                               Sources{.server = R"({"num_beams": 4})"}}) {
    for (const char* const refusal :
         {R"("use_beam_search": false)", R"("num_beams": 1)"}) {
      for (const char* const more : {"", R"(, "n": 3)"}) {
        const GenerationParams params =
            Resolve(Concat(refusal, more), beams).params;
        EXPECT_EQ(params.num_beams, 1) << refusal << more;
        EXPECT_TRUE(params.do_sample) << refusal << more;
      }
    }
  }
}

TEST(ResolveParamsTest, WhoRefusesBeamsGetsTheServersGreedySearch) {
  const Sources greedy = {.server = R"({"do_sample": false})",
                          .model = R"({"num_beams": 4})"};
  for (const char* const refusal :
       {R"("use_beam_search": false)", R"("num_beams": 1)"}) {
    const GenerationParams params = Resolve(refusal, greedy).params;
    EXPECT_EQ(params.num_beams, 1) << refusal;
    EXPECT_FALSE(params.do_sample) << refusal;
    const GenerationParams several =
        Resolve(Concat(refusal, R"(, "n": 3)"), greedy).params;
    EXPECT_EQ(several.num_return_sequences, 3) << refusal;
    EXPECT_TRUE(several.do_sample) << refusal;
  }
}

TEST(ResolveParamsTest, TheModelsFiltersAreTakenByDraws) {
  const Sources model = {
      .model = R"({"do_sample": true, "temperature": 0.6, "top_k": 20})"};
  EXPECT_EQ(Resolve("", model).params.temperature, 0.6);
  EXPECT_EQ(Resolve("", model).params.top_k, 20);
  EXPECT_EQ(Resolve(R"("temperature": 1.0)", model).params.temperature, 1.0);
  EXPECT_EQ(Resolve(R"("temperature": 1.0, "top_k": -1)", model).params.top_k,
            0);
  EXPECT_EQ(Resolve(R"("do_sample": false)", model).params.top_k, 0);
}

TEST(ResolveParamsTest, TheServerStandsBetweenCallAndModel) {
  const Sources both = {
      .server = R"({"temperature": 0.2, "max_tokens": 99, "top_k": -1})",
      .model = R"({"temperature": 0.6, "top_k": 20, "max_new_tokens": 50})"};
  const ResolvedParams resolved = Resolve("", both);
  EXPECT_EQ(resolved.params.temperature, 0.2);
  EXPECT_EQ(resolved.params.max_new_tokens, 99);
  EXPECT_EQ(resolved.params.top_k, 0);
  EXPECT_EQ(Resolve(R"("temperature": 0.9)", both).params.temperature, 0.9);
  EXPECT_EQ(Resolve("", {.model = both.model}).params.max_new_tokens, 50);
}

TEST(ResolveParamsTest, AChatWithoutLogProbabilitiesHasNoneOfTheServers) {
  const Sources chat = {.server = R"({"logprobs": 2})", .api = Api::kChat};
  EXPECT_EQ(Resolve("", chat).params.logprobs, 2);
  EXPECT_EQ(Resolve(R"("logprobs": false)", chat).params.logprobs,
            std::nullopt);
  EXPECT_EQ(Resolve(R"("logprobs": true)", chat).params.logprobs, 0);
}

TEST(ResolveParamsTest, BeamsOfTheServer) {
  for (const char* server :
       {R"({"num_beams": 4})", R"({"use_beam_search": true, "n": 4})"}) {
    const Sources beams = {.server = server};
    EXPECT_EQ(Resolve("", beams).params.num_beams, 4) << server;
    EXPECT_FALSE(Resolve("", beams).params.do_sample);
    EXPECT_EQ(Resolve(R"("n": 6)", beams).params.num_beams, 6);
    EXPECT_EQ(Resolve(R"("num_beams": 2, "n": 2)", beams).params.num_beams, 2);
    EXPECT_TRUE(Resolve(R"("temperature": 0.5)", beams).params.do_sample);
    EXPECT_EQ(Resolve(R"("temperature": 0.5)", beams).params.num_beams, 1);
  }
  const Sources sampled = {
      .server = R"({"temperature": 0.5, "do_sample": true, "num_beams": 3})"};
  EXPECT_TRUE(Resolve("", sampled).params.do_sample);
  EXPECT_EQ(Resolve("", sampled).params.num_beams, 3);
}

TEST(ResolveParamsTest, OneBeamOfTheServerTakesThePlaceOfTheModels) {
  for (const char* server :
       {R"({"num_beams": 1})", R"({"use_beam_search": false})"}) {
    const Sources one = {.server = server, .model = R"({"num_beams": 4})"};
    const Sources none = {.server = server};
    for (const char* fields :
         {"", R"("n": 3)", R"("n": 6)", R"("temperature": 0)",
          R"("temperature": 0, "n": 3)", R"("max_tokens": 3)"}) {
      const GenerationParams params = Resolve(fields, one).params;
      EXPECT_EQ(params.num_beams, 1) << server << fields;
      EXPECT_TRUE(params.do_sample) << server << fields;
      EXPECT_EQ(params.do_sample, Resolve(fields, none).params.do_sample);
    }
    EXPECT_EQ(Resolve(R"("num_beams": 2, "n": 2)", one).params.num_beams, 2);
    EXPECT_FALSE(Resolve(R"("do_sample": false)", one).params.do_sample);
  }
  const Sources greedy = {.server = R"({"num_beams": 1, "do_sample": false})",
                          .model = R"({"num_beams": 4})"};
  EXPECT_EQ(Resolve("", greedy).params.num_beams, 1);
  EXPECT_FALSE(Resolve("", greedy).params.do_sample);
}

TEST(ResolveParamsTest, DefaultsKeepTheLimitsOfTheServer) {
  Limits limits;
  limits.max_n = 12;
  limits.max_num_beams = 8;
  limits.max_choices = 16;
  limits.max_tokens = 50;
  const auto resolve = [&](const std::string& fields,
                           const std::string& model_defaults) {
    const auto call =
        ReadCall(Api::kCompletions, Concat("{", fields, "}"), limits);
    EXPECT_OK(call);
    const auto defaults =
        ReadGenerationDefaults(ParseJson(model_defaults)->get_object(),
                               "generation_config.json", DefaultsOf::kModel);
    EXPECT_OK(defaults);
    const ServerDefaults server;
    const ResolvedParams resolved =
        ResolveParams(*call, server, *defaults, Model(), 10);
    return std::pair(resolved, CheckLimits(*call, resolved.params, &server));
  };
  const std::string two = R"("prompt": ["a", "b"])";
  const std::string four = R"("prompt": ["a", "b", "c", "d"])";
  EXPECT_OK(resolve(four, R"({"num_beams": 4})").second);
  EXPECT_THAT(resolve(four, R"({"num_beams": 5})").second,
              StatusIs(kInvalid,
                       "prompt must make at most 16 sequences of all prompts "
                       "(--max-choices), got 4 times 5"));
  EXPECT_OK(resolve(two, R"({"num_beams": 5})").second);
  EXPECT_OK(
      resolve(four + R"(, "num_beams": 1)", R"({"num_beams": 5})").second);
  EXPECT_THAT(resolve(R"("prompt": "a")", R"({"num_beams": 9})").second,
              StatusIs(kInvalid,
                       "num_beams must be in [1, 8] (--max-num-beams), got the "
                       "model's default, 9: give another, here or as "
                       "--num-beams of the server"));
  const std::string samples =
      R"({"num_return_sequences": 200, "do_sample": true})";
  EXPECT_THAT(
      resolve(R"("prompt": "a")", samples).second,
      StatusIs(kInvalid,
               "num_return_sequences must be in [1, 12] (--max-n), got the "
               "model's default, 200: give another, here or as "
               "--num-return-sequences of the server"));
  EXPECT_OK(resolve(R"("prompt": "a", "n": 2)", samples).second);
  // The call's n makes as many beams of a default.
  EXPECT_THAT(
      resolve(R"("prompt": "a", "n": 9)", R"({"num_beams": 4})").second,
      StatusIs(kInvalid, "n must be in [1, 8] (--max-num-beams), got 9"));
  for (const char* long_ones :
       {R"({"max_new_tokens": 60})", R"({"max_length": 80})"}) {
    const auto [resolved, kept] = resolve(R"("prompt": "a")", long_ones);
    EXPECT_OK(kept);
    EXPECT_EQ(resolved.params.max_new_tokens, 50) << long_ones;
    EXPECT_THAT(resolved.defaults, ElementsAre(Pair("max_new_tokens", "50")));
  }
}

// The default number of beams follows the call's n, which the error names.
TEST(ResolveParamsTest, AnNBeyondTheRoomForBeamsIsSaidToBe) {
  ModelDescription model = Model();
  model.limits.max_beams = 6;
  const auto server = ServerDefaults::Read(R"({"num_beams": 4})");
  ASSERT_OK(server);
  const auto room = [&](const std::string& fields) {
    const auto call =
        ReadCall(Api::kCompletions, Concat(R"({"prompt": "a", )", fields, "}"));
    EXPECT_OK(call);
    return Message(CheckRoom(
        *call, ResolveParams(*call, *server, {}, model, 10).params, model));
  };
  EXPECT_EQ(room(R"("n": 6)"), "");
  for (const char* const more :
       {"", R"(, "do_sample": false)", R"(, "stochastic": true)"}) {
    for (const char* const name : {"n", "num_return_sequences"}) {
      EXPECT_EQ(room(Concat('"', name, R"(": 7)", more)),
                Concat(name,
                       " must be at most 6 (--max-beams, what a step has "
                       "room for), got 7"))
          << more;
    }
  }
  // Without beams by default, the engine reports the error.
  EXPECT_EQ(room(R"("n": 7, "do_sample": true)"), "");
  EXPECT_EQ(room(R"("n": 7, "num_beams": 7)"), "");
}

// Otherwise the error would be about n in greedy search instead of the wrong
// field.
TEST(ResolveParamsTest, AWrongCallHasTheBeamsOfTheServer) {
  const auto server = ServerDefaults::Read(R"({"num_beams": 4})");
  ASSERT_OK(server);
  const auto error = [&](const std::string& fields) {
    const auto call = ReadCall(
        Api::kCompletions, Concat(R"({"prompt": "a", "n": 2, )", fields, "}"));
    EXPECT_OK(call);
    GenerationParams params =
        ResolveParams(*call, *server, {}, Model(), 10).params;
    return Message(ValidateParams(Model(), 10, &params));
  };
  EXPECT_EQ(error(R"("stop": [""])"), "stop[0] must not be empty, got \"\"");
  EXPECT_EQ(error(R"("allowed_token_ids": [])"),
            "allowed_token_ids must not be empty, got []");
  EXPECT_EQ(error(R"("do_sample": false, "best_of": 3)"),
            "best_of must be unset with beams, got 3");
}

// In the words of the request format: drafts are "off", not false.
TEST(ResolveParamsTest, WrongDraftsAreNamedAsInTheRequestFormat) {
  const auto call = [](const std::string& fields) {
    return ReadCall(Api::kCompletions,
                    Concat(R"({"prompt": "a", )", fields, "}"));
  };
  EXPECT_THAT(call(R"("speculate": true)"),
              StatusIs(kInvalid,
                       "speculate must be \"off\", "
                       "\"METHOD[:NUM_TOKENS[:MODE]]\" or an object, got "
                       "true"));
  const auto error = [&](const std::string& fields, bool has_shareable_pages) {
    const auto read = call(fields);
    EXPECT_OK(read);
    ModelDescription model = Model();
    model.has_shareable_pages = has_shareable_pages;
    GenerationParams params = ResolveParams(*read, {}, {}, model, 10).params;
    return Message(ValidateParams(model, 10, &params));
  };
  EXPECT_EQ(error(R"("speculate": "suffix:3")", false),
            "speculate.method must be \"off\" for a model that keeps more of a "
            "sequence than pages, got \"suffix\"");
  EXPECT_EQ(
      error(R"("speculate": "ngram", "num_beams": 2, "do_sample": true)", true),
      "speculate.method must be \"off\" with do_sample, stochastic or "
      "num_beam_groups beside num_beams, got \"ngram\"");
  for (const char* off : {R"("off")", "false", R"({"method": "off"})"}) {
    EXPECT_EQ(error(Concat(R"("speculate": )", off), false), "");
  }
}

TEST(ResolveParamsTest, ADefaultOfTheServerBeyondALimitIsSaidToBeOne) {
  Limits limits;
  limits.max_n = 4;
  // The limit is on samples, not on beams.
  const auto server = ServerDefaults::Read(
      R"({"num_beams": 8, "num_return_sequences": 8})", limits);
  ASSERT_OK(server);
  const auto call =
      ReadCall(Api::kCompletions, R"({"prompt": "a", "num_beams": 1})", limits);
  ASSERT_OK(call);
  const ResolvedParams resolved =
      ResolveParams(*call, *server, {}, Model(), 10);
  EXPECT_THAT(CheckLimits(*call, resolved.params, &*server),
              StatusIs(kInvalid,
                       "num_return_sequences must be in [1, 4] (--max-n), got "
                       "the server's default, 8: give another, here or as "
                       "--num-return-sequences of the server"));
}

TEST(ResolveParamsTest, NoDefaultMakesAGoodCallABadOne) {
  const Sources server = {
      .server = R"({"stop_token_ids": [7], "max_tokens": 20, "patience": 2,
                    "early_stopping": true, "num_beams": 4})"};
  EXPECT_EQ(Resolve("", server).params.patience, 2);
  EXPECT_EQ(Resolve(R"("stochastic": true, "num_beams": 2)", server)
                .params.early_stopping,
            EarlyStopping::kFalse);
  EXPECT_EQ(Resolve(R"("allowed_sequences": [[7, 8, 2]])", server)
                .params.allowed_sequences->size(),
            1);
}

// Whose text has become tokens when defaults are taken.
TEST(ResolveParamsTest, ADecoderPromptOfTheCallTakesThePlaceOfTheServers) {
  ModelDescription model = Model();
  model.encoder.emplace();
  model.encoder->decoder_prompt = {3};
  const auto server = ServerDefaults::Read(R"({"decoder_prompt_tokens": [7]})");
  ASSERT_OK(server);
  auto call = ReadCall(Api::kCompletions, R"({"prompt": "a"})");
  ASSERT_OK(call);
  EXPECT_THAT(
      ResolveParams(*call, *server, {}, model, 1).params.decoder_prompt_tokens,
      ElementsAre(7));
  call =
      ReadCall(Api::kCompletions, R"({"prompt": "a", "decoder_prompt": "b"})");
  ASSERT_OK(call);
  call->params.decoder_prompt.clear();
  call->params.decoder_prompt_tokens = {9};
  const ResolvedParams resolved = ResolveParams(*call, *server, {}, model, 1);
  EXPECT_THAT(resolved.params.decoder_prompt_tokens, ElementsAre(9));
  EXPECT_THAT(resolved.defaults, IsEmpty());
}

TEST(MostNewTokensTest, AreWhatContextPagesAndServerAllow) {
  ModelDescription model = Model();
  EXPECT_EQ(MostNewTokens(model, {}), 999);
  EXPECT_EQ(MostNewTokens(model, {.max_tokens = 7}), 7);
  // The last token takes no place.
  model.num_pages = 2;
  EXPECT_EQ(MostNewTokens(model, {}), 32);
  // A source has pages of its own.
  model.encoder = {.max_source_tokens = 50, .decoder_prompt = {0}};
  EXPECT_EQ(MostNewTokens(model, {}), 16);
  model.num_pages = 1000;
  EXPECT_EQ(MostNewTokens(model, {}), 999);
  model.num_pages = 0;
  EXPECT_EQ(MostNewTokens(model, {}), 1);
}

TEST(ResolveParamsTest, BadServerDefaultsAreRefused) {
  EXPECT_THAT(ServerDefaults::Read("[]"),
              StatusIs(kInvalid, "the defaults must be a JSON object, got []"));
  EXPECT_THAT(ServerDefaults::Read(R"({"num_beans": 4})"),
              StatusIs(kInvalid,
                       "unknown field \"num_beans\"; did you mean num_beams?"));
  EXPECT_THAT(ServerDefaults::Read(R"({"prompt": "a"})"),
              StatusIs(kInvalid, "prompt must not have a default, got \"a\""));
  EXPECT_THAT(
      ServerDefaults::Read(R"({"decoder_prompt": "a"})"),
      StatusIs(kInvalid, "decoder_prompt must not have a default, got \"a\""));
  EXPECT_THAT(ServerDefaults::Read(R"({"num_beams": "x"})"),
              StatusIs(kInvalid, HasSubstr("num_beams must be")));
  EXPECT_THAT(ServerDefaults::Read(R"({"temperature": -1})")->Check(Model()),
              StatusIs(kInvalid, HasSubstr("temperature must be at least 0")));
  EXPECT_THAT(
      ServerDefaults::Read(R"({"stop_token_ids": [100]})")->Check(Model()),
      StatusIs(kInvalid, HasSubstr("stop_token_ids")));
}

}  // namespace
}  // namespace espalier::openai
