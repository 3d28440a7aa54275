// Defaults of generation_config.json for requests that leave params open.
#include "request/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "request/json/generation_config.h"
#include "request/json/request_json.h"
#include "request/param_fields.h"
#include "tests/request/json/check_line.h"
#include "tests/request/take_defaults.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

constexpr auto kWrongValue = absl::StatusCode::kInvalidArgument;

absl::StatusOr<GenerationDefaults> ReadDefaults(
    const std::string& config, DefaultsOf of = DefaultsOf::kModel) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(config));
  ASSIGN_OR_RETURN(
      GenerationDefaults defaults,
      ReadGenerationDefaults(value.get_object(), "DIR/gen.json", of));
  RETURN_IF_ERROR(CheckDefaults(defaults, EnFr()));
  return defaults;
}

// The params of a request line for which the file is `config`, as they run.
struct Filled {
  GenerationParams params;
  NamedValues taken;
};
Filled FillIn(const std::string& config, const std::string& params,
              int num_prompt_tokens = 3, DefaultsOf of = DefaultsOf::kModel) {
  const absl::StatusOr<GenerationDefaults> defaults = ReadDefaults(config, of);
  EXPECT_OK(defaults) << config;
  RequestLine line =
      ParseRequestLine(R"({"prompt": "a", "params": )" + params + "}");
  EXPECT_OK(line.body);
  Filled filled = {line.body->params, {}};
  filled.taken = TakeDefaults(*defaults, line.body->given, EnFr(),
                              num_prompt_tokens, &filled.params);
  GenerationParams valid = filled.params;
  valid.bad_words.clear();  // has no tokens without a tokenizer
  EXPECT_OK(ValidateParams(EnFr(), num_prompt_tokens, &valid))
      << config << params;
  return filled;
}

constexpr char kSampling[] =
    R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
        "repetition_penalty": 1.05})";

TEST(GenerationDefaultsTest, WhatARequestLeavesOpenIsTheFiles) {
  const Filled filled = FillIn(kSampling, "{}");
  EXPECT_TRUE(filled.params.do_sample);
  EXPECT_EQ(filled.params.temperature, 0.6);
  EXPECT_EQ(filled.params.top_k, 20);
  EXPECT_EQ(filled.params.top_p, 0.95);
  EXPECT_EQ(filled.params.repetition_penalty, 1.05);
  EXPECT_THAT(filled.taken,
              ElementsAre(Pair("do_sample", "true"), Pair("temperature", "0.6"),
                          Pair("top_k", "20"), Pair("top_p", "0.95"),
                          Pair("repetition_penalty", "1.05")));
}

TEST(GenerationDefaultsTest, WhatARequestSaysCountsAlsoIfItIsTheUsualDefault) {
  const Filled filled =
      FillIn(kSampling,
             R"({"temperature": 1.0, "top_k": 0, "repetition_penalty": 2})");
  EXPECT_TRUE(filled.params.do_sample);
  EXPECT_EQ(filled.params.temperature, 1.0);
  EXPECT_EQ(filled.params.top_k, 0);
  EXPECT_EQ(filled.params.repetition_penalty, 2);
  EXPECT_THAT(filled.taken,
              ElementsAre(Pair("do_sample", "true"), Pair("top_p", "0.95")));
}

// As transformers, for which they are no more than a warning then.
TEST(GenerationDefaultsTest, FieldsOfSamplingAreOfRequestsThatSample) {
  for (const char* params :
       {R"({"do_sample": false})", R"({"do_sample": false, "num_beams": 4})"}) {
    EXPECT_THAT(FillIn(kSampling, params).taken,
                ElementsAre(Pair("repetition_penalty", "1.05")));
  }
  const char* const greedy = R"({"temperature": 0.6, "top_p": 0.9})";
  EXPECT_THAT(FillIn(greedy, "{}").taken, IsEmpty());
  EXPECT_THAT(FillIn(greedy, R"({"do_sample": true})").taken,
              ElementsAre(Pair("temperature", "0.6"), Pair("top_p", "0.9")));
}

// Files with everything beside requests of every kind: FillIn checks that each
// is still good.
TEST(GenerationDefaultsTest, NoDefaultMakesAGoodRequestABadOne) {
  const char* const files[] = {
      kSampling,
      R"({"num_beams": 4, "num_return_sequences": 4, "early_stopping": true,
          "length_penalty": 2.0, "max_length": 512, "min_length": 9})",
      R"({"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5})",
      R"({"do_sample": true, "num_beams": 3, "num_return_sequences": 2,
          "temperature": 0.7, "max_new_tokens": 5000, "min_p": 0.1,
          "typical_p": 0.9, "stop_strings": ["x"], "bad_words_ids": [[7]],
          "suppress_tokens": [8], "no_repeat_ngram_size": 3})",
      R"({"forced_bos_token_id": 3, "forced_eos_token_id": [2, 8]})"};
  for (const char* file : files) {
    for (const char* params :
         {"{}",
          R"({"num_beams": 2})",
          R"({"num_beams": 1})",
          R"({"n": 1})",
          R"({"do_sample": true, "n": 7})",
          R"({"do_sample": true, "n": 2, "best_of": 9})",
          R"({"temperature": 0})",
          R"({"temperature": 0, "num_beams": 5})",
          R"({"stochastic": true, "num_beams": 3})",
          R"({"num_beams": 6, "num_beam_groups": 3})",
          R"({"num_beams": 3, "early_stopping": true, "patience": 2})",
          R"({"num_beams": 3, "speculate": "ngram"})",
          R"({"do_sample": true, "speculate": "ngram"})",
          R"({"allowed_sequences": [[5, 6, 7]]})",
          R"({"ignore_eos": true})",
          R"({"allowed_token_ids": [5, 6]})",
          R"({"stop_token_ids": [5, 6, 7]})",
          R"({"bad_words": ["a b"]})",
          R"({"eos_token_id": []})",
          R"({"suppress_tokens": [5]})",
          R"({"stop": "a", "include_stop": true})",
          R"({"suppress_tokens": [2, 3]})",
          R"({"max_new_tokens": 1})"}) {
      FillIn(file, params);
      FillIn(file, params, 3, DefaultsOf::kGiven);
    }
  }
}

// The EOS ids of a file end none of the sequences that a request allows, and
// are no more beside its own than a step has room for.
TEST(GenerationDefaultsTest, ListsAreTakenWhereTheRequestHasRoomForThem) {
  const char* const config =
      R"({"eos_token_id": [6, 7], "suppress_tokens": [9], "do_sample": true})";
  const auto taken = [&](const char* params) {
    return FillIn(config, params, 3, DefaultsOf::kGiven).taken;
  };
  const auto eos = Pair("eos_token_id", "[6, 7]");
  const auto suppressed = Pair("suppress_tokens", "[9]");
  const auto sampling = Pair("do_sample", "true");
  EXPECT_THAT(taken("{}"), ElementsAre(eos, sampling, suppressed));
  EXPECT_THAT(taken(R"({"allowed_sequences": [[5, 6, 8]]})"),
              ElementsAre(sampling, suppressed));
  EXPECT_THAT(
      taken(R"({"allowed_sequences": [[5, 6, 8]], "ignore_eos": true})"),
      ElementsAre(eos, sampling, suppressed));
  EXPECT_THAT(taken(R"({"temperature": 0.5, "bad_words": ["a"]})"),
              ElementsAre(eos, sampling, suppressed));

  ModelDescription model = EnFr();
  model.limits.max_eos_token_ids = 3;
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults,
                       ReadDefaults(config, DefaultsOf::kGiven));
  for (const int num_stops : {1, 2}) {
    GenerationParams params;
    for (int i = 0; i < num_stops; ++i) params.stop_token_ids.push_back(20 + i);
    const auto given = DifferingParams(params);
    TakeDefaults(defaults, given, model, 3, &params);
    EXPECT_EQ(params.eos_token_id.has_value(), num_stops == 1);
    EXPECT_OK(ValidateParams(model, 3, &params));
  }
}

TEST(GenerationDefaultsTest, AllowedSequencesAreAsLongAsTheyAre) {
  const Filled filled =
      FillIn(R"({"min_length": 9, "max_length": 40, "stop_strings": "x"})",
             R"({"allowed_sequences": [[5], [6, 7]]})");
  EXPECT_THAT(filled.taken, IsEmpty());
  EXPECT_EQ(filled.params.min_new_tokens, 0);
}

TEST(GenerationDefaultsTest, WithoutATokenizerStopStringsAreUnsupported) {
  ASSERT_OK_AND_ASSIGN(
      GenerationDefaults defaults,
      ReadDefaults(R"({"stop_strings": ["x"], "suppress_tokens": [9]})"));
  LeaveOut("stop", &defaults);
  EXPECT_THAT(defaults.fields, ElementsAre(Pair("suppress_tokens", "[9]")));
  EXPECT_EQ(NameUnsupported(defaults),
            "DIR/gen.json: stop_strings [\"x\"] is not supported");
  GenerationParams params;
  TakeDefaults(defaults, {}, EnFr(), 3, &params);
  EXPECT_THAT(params.stop, IsEmpty());
}

// The error names the resulting search, and its source.
TEST(GenerationDefaultsTest, TheErrorOfAWrongSearchIsOfTheBeamsByDefault) {
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults,
                       ReadDefaults(R"({"num_beams": 4, "max_length": 40})"));
  const auto error = [&](const char* params) {
    RequestLine line = ParseRequestLine(
        std::string(R"({"prompt": "a", "params": )") + params + "}");
    EXPECT_OK(line.body);
    const NamedValues taken =
        TakeDefaults(defaults, line.body->given, EnFr(), 3, &line.body->params);
    return Message(NameDefaults(ValidateParams(EnFr(), 3, &line.body->params),
                                taken, "DIR/gen.json"));
  };
  EXPECT_EQ(error(R"({"n": 5})"),
            "num_return_sequences must be at most 4 (num_beams), got 5; "
            "num_beams is 4 by DIR/gen.json");
  EXPECT_EQ(error(R"({"num_beam_groups": 3})"),
            "num_beam_groups must divide num_beams, 4, got 3; num_beams is 4 "
            "by DIR/gen.json");
  EXPECT_EQ(error(R"({"n": 5, "num_beams": 3})"),
            "num_return_sequences must be at most 3 (num_beams), got 5");
  EXPECT_EQ(error(R"({"temperature": -1})"),
            "temperature must be at least 0, got -1");
  // Samples have no beams.
  EXPECT_EQ(error(R"({"n": 5, "do_sample": true})"), "");
}

// Whose value max_new_tokens is made of, which has another name.
TEST(GenerationDefaultsTest, AnErrorOfTheLengthIsOfMaxLengthByDefault) {
  const NamedValues taken = {{"num_beams", "4"}, {"max_length", "40"}};
  EXPECT_EQ(Message(NameDefaults(InvalidField("lower `max_new_tokens`"), taken,
                                 "DIR/gen.json")),
            "lower max_new_tokens; max_length is 40 by DIR/gen.json");
  EXPECT_EQ(
      Message(NameDefaults(InvalidField("lower it"), taken, "DIR/gen.json")),
      "lower it");
}

TEST(GenerationDefaultsTest, MoreBeamsThanAStepTakesAreTakenAndTold) {
  ModelDescription model = EnFr();
  model.limits.max_beams = 2;
  const GenerationDefaults defaults =
      ReadDefaults(R"({"num_beams": 4})").value();
  EXPECT_OK(CheckDefaults(defaults, model));
  GenerationParams params;
  TakeDefaults(defaults, {}, model, 3, &params);
  EXPECT_EQ(params.num_beams, 4);
  EXPECT_THAT(ValidateParams(model, 3, &params),
              StatusIs(kWrongValue, HasSubstr("num_beams must be at most 2")));
}

TEST(GenerationDefaultsTest, ADecoderBeginsAsItsModelSays) {
  ModelDescription model = EnFr();
  model.encoder =
      EncoderDescription{.max_source_tokens = 100, .decoder_prompt = {3}};
  const auto check = [&](const char* config) {
    return CheckDefaults(ReadDefaults(config).value(), model);
  };
  EXPECT_OK(check(R"({"decoder_start_token_id": 3})"));
  EXPECT_OK(check(R"({"decoder_start_token_id": null})"));
  for (const char* const other : {"4", "[3]", "\"3\"", "3.5"}) {
    EXPECT_THAT(
        check((std::string(R"({"decoder_start_token_id": )") + other + "}")
                  .c_str()),
        StatusIs(kWrongValue,
                 std::string("DIR/gen.json: decoder_start_token_id must be "
                             "what the model's decoder begins with, 3, got ") +
                     other));
  }
  // It is of no concern where there is no encoder.
  model.encoder.reset();
  EXPECT_OK(check(R"({"decoder_start_token_id": 4})"));
}

TEST(GenerationDefaultsTest, MisspeltFieldsAreUnsupportedAndOthersAreNot) {
  EXPECT_EQ(
      UnsupportedWarning(ReadDefaults(R"({"temprature": 0.6, "num_beam": 4,
                                 "lenght_penalty": 2, "tok_p": 0.9,
                                 "no_repeat_ngram_sizes": 3,
                                 "guidence_scale": 3})")
                             .value()),
      "DIR/gen.json: temprature 0.6, num_beam 4, lenght_penalty 2, tok_p "
      "0.9, no_repeat_ngram_sizes 3 and guidence_scale 3 are not "
      "supported, and ignored");
  EXPECT_EQ(
      UnsupportedWarning(
          ReadDefaults(R"({"temprature": null, "do_samples": false})").value()),
      "");
  // Fields of transformers 5, and of files of some models.
  std::string config = "{";
  for (const char* const name : {"_from_model_config",
                                 "alignment_heads",
                                 "assistant_confidence_threshold",
                                 "assistant_early_exit",
                                 "assistant_ensemble_weight",
                                 "assistant_lookbehind",
                                 "bos_token_id",
                                 "cache_config",
                                 "cache_implementation",
                                 "chat_format",
                                 "compile_config",
                                 "continuous_batching_config",
                                 "disable_compile",
                                 "is_assistant",
                                 "is_multilingual",
                                 "lang_to_id",
                                 "low_memory",
                                 "max_cache_len",
                                 "max_initial_timestamp_index",
                                 "max_matching_ngram_size",
                                 "max_window_size",
                                 "median_filter_width",
                                 "no_timestamps_token_id",
                                 "num_assistant_tokens",
                                 "num_assistant_tokens_schedule",
                                 "output_attentions",
                                 "output_hidden_states",
                                 "output_logits",
                                 "output_scores",
                                 "pad_token_id",
                                 "prefill_chunk_size",
                                 "prev_sot_token_id",
                                 "prompt_lookup_num_tokens",
                                 "remove_invalid_values",
                                 "return_dict_in_generate",
                                 "return_timestamps",
                                 "target_lookbehind",
                                 "task_to_id",
                                 "transformers_version",
                                 "trust_remote_code",
                                 "use_cache"}) {
    if (config.size() > 1) config += ", ";
    config += std::string("\"") + name + "\": 7";
  }
  EXPECT_EQ(UnsupportedWarning(ReadDefaults((config + "}").c_str()).value()),
            "");
}

// As transformers forces it.
TEST(GenerationDefaultsTest, AForcedFirstTokenIsTheSecondOfItsContext) {
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults,
                       ReadDefaults(R"({"forced_bos_token_id": 5})"));
  for (const int num_prompt_tokens : {1, 2, 3}) {
    GenerationParams params;
    TakeDefaults(defaults, {}, EnFr(), num_prompt_tokens, &params);
    EXPECT_EQ(params.forced_bos_token_id.has_value(), num_prompt_tokens == 1);
  }
  ModelDescription translator = EnFr();
  translator.encoder =
      EncoderDescription{.max_source_tokens = 100, .decoder_prompt = {0}};
  GenerationParams params;
  TakeDefaults(defaults, {}, translator, 30, &params);
  EXPECT_EQ(params.forced_bos_token_id, 5);
}

TEST(GenerationDefaultsTest, LengthsAreOfThePromptAndTheContext) {
  const auto length = [](const char* config, int num_prompt_tokens,
                         const char* params = "{}") {
    return FillIn(config, params, num_prompt_tokens).params.max_new_tokens;
  };
  EXPECT_THAT(length(R"({"max_new_tokens": 50})", 3), Optional(50));
  EXPECT_THAT(length(R"({"max_new_tokens": 5000})", 24), Optional(1000));
  EXPECT_THAT(length(R"({"max_length": 50})", 3), Optional(47));
  EXPECT_THAT(length(R"({"max_length": 50})", 60), Optional(1));
  EXPECT_THAT(length(R"({"max_length": 4096})", 24), Optional(1000));
  EXPECT_THAT(length(R"({"max_length": 50, "max_new_tokens": 9})", 3),
              Optional(9));
  EXPECT_THAT(length(R"({"max_length": 50})", 3, R"({"max_tokens": 8})"),
              Optional(8));
  // transformers' own, which is no choice of the model's maker.
  EXPECT_EQ(length(R"({"max_length": 20})", 3), std::nullopt);
  EXPECT_EQ(
      length(R"({"max_length": 50})", 3, R"({"allowed_sequences": [[5, 6]]})"),
      std::nullopt);
  EXPECT_EQ(FillIn(R"({"min_length": 9})", "{}").params.min_new_tokens, 6);
  EXPECT_EQ(FillIn(R"({"min_length": 9, "min_new_tokens": 2})", "{}")
                .params.min_new_tokens,
            2);
  EXPECT_EQ(FillIn(R"({"min_length": 2})", "{}").params.min_new_tokens, 0);
}

TEST(GenerationDefaultsTest, WhatIsNeutralOrOfNoConcernIsNoDefault) {
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults, ReadDefaults(R"({
      "_from_model_config": true, "bos_token_id": 1, "pad_token_id": 3,
      "eos_token_id": [2, 5], "decoder_start_token_id": 3, "use_cache": true,
      "transformers_version": "4.40.0", "cache_implementation": "hybrid",
      "chat_format": "chatml", "temperature": 1.0, "top_p": 1, "top_k": null,
      "do_sample": false, "num_beams": 1, "repetition_penalty": 1.0,
      "bad_words_ids": null, "suppress_tokens": [], "min_length": 0,
      "epsilon_cutoff": 0.0, "eta_cutoff": 0, "encoder_repetition_penalty": 1,
      "renormalize_logits": false, "forced_eos_token_id": null,
      "sequence_bias": {}, "begin_suppress_tokens": [], "guidance_scale": 1})"));
  EXPECT_THAT(defaults.fields, IsEmpty());
  EXPECT_THAT(defaults.unsupported, IsEmpty());
  EXPECT_EQ(UnsupportedWarning(defaults), "");
  EXPECT_TRUE(defaults.empty());
}

TEST(GenerationDefaultsTest, WhatThereIsNothingForIsNamed) {
  const auto warning = [](const char* config) {
    return UnsupportedWarning(ReadDefaults(config).value());
  };
  EXPECT_EQ(warning(R"({"encoder_no_repeat_ngram_size": 3})"),
            "DIR/gen.json: encoder_no_repeat_ngram_size 3 is not supported, "
            "and ignored");
  EXPECT_EQ(warning(R"({"epsilon_cutoff": 0.001, "token_healing": true,
                        "force_words_ids": [[7]], "top_p": 0.9})"),
            "DIR/gen.json: epsilon_cutoff 0.001, force_words_ids [[7]] and "
            "token_healing true are not supported, and ignored");
}

TEST(GenerationDefaultsTest, EditsOfScoresAreTakenAsTransformersWritesThem) {
  const GenerationParams params =
      FillIn(R"({"sequence_bias": [[[7, 8], -1.5], [[9], 2]],
                 "exponential_decay_length_penalty": [3, 1.05],
                 "renormalize_logits": true, "num_beams": 4,
                 "begin_suppress_tokens": [220, 257]})",
             "{}")
          .params;
  EXPECT_THAT(params.sequence_bias,
              ElementsAre(SequenceBias{{7, 8}, -1.5}, SequenceBias{{9}, 2}));
  EXPECT_EQ(params.exponential_decay_length_penalty, (LengthDecay{3, 1.05}));
  EXPECT_TRUE(params.renormalize_logits);
  EXPECT_THAT(params.begin_suppress_tokens, ElementsAre(220, 257));
}

// This is the behaviour of vLLM and transformers: a model that samples by
// default still searches for a request that sets only num_beams.
TEST(GenerationDefaultsTest, BeamsThatARequestAsksForAreSearched) {
  const auto draws = [](const char* params) {
    return FillIn(kSampling, params).params.do_sample;
  };
  EXPECT_FALSE(draws(R"({"num_beams": 4})"));
  EXPECT_FALSE(draws(R"({"num_beams": 4, "n": 4, "seed": 7})"));
  EXPECT_TRUE(draws(R"({"num_beams": 4, "do_sample": true})"));
  EXPECT_TRUE(draws(R"({"num_beams": 4, "temperature": 0.7})"));
  EXPECT_TRUE(draws(R"({"num_beams": 1})"));
  EXPECT_TRUE(draws(R"({"n": 3})"));
  EXPECT_TRUE(
      FillIn(R"({"do_sample": true, "num_beams": 3})", "{}").params.do_sample);
  EXPECT_FALSE(
      FillIn(R"({"do_sample": true, "num_beams": 3})", R"({"num_beams": 4})")
          .params.do_sample);
}

TEST(GenerationDefaultsTest, WhatASearchLeavesOutIsTold) {
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults,
                       ReadDefaults(kSampling));
  GenerationParams params;
  params.num_beams = 4;
  const auto note = [&](std::vector<std::string_view> given) {
    return SearchNote(defaults, given, params, "--num-beams", "--do-sample");
  };
  EXPECT_EQ(note({"num_beams", "num_return_sequences"}),
            "--num-beams asks for the search: do_sample true, temperature 0.6, "
            "top_k 20 and top_p 0.95 of DIR/gen.json are left out; "
            "--do-sample draws beams");
  EXPECT_EQ(note({"num_beams", "top_k"}), "");
  EXPECT_EQ(note({}), "");
  params.num_beams = 1;
  EXPECT_EQ(note({"num_beams"}), "");
}

TEST(GenerationDefaultsTest, WhatOnlyAHostSelectsByIsUnsupportedElsewhere) {
  ASSERT_OK_AND_ASSIGN(
      GenerationDefaults defaults,
      ReadDefaults(R"({"renormalize_logits": true, "num_beams": 4,
                       "sequence_bias": [[[7, 8], -1.0]]})"));
  GenerationDefaults kept = defaults;
  ModelDescription model = EnFr();
  LeaveOutHostSelection(model, &kept);
  EXPECT_EQ(kept.unsupported.size(), 0);
  model.selects_on_host = false;
  LeaveOutHostSelection(model, &defaults);
  EXPECT_EQ(UnsupportedWarning(defaults),
            "DIR/gen.json: renormalize_logits true and sequence_bias "
            "[[[7, 8], -1.0]] are not supported, and ignored");
  GenerationParams params;
  EXPECT_THAT(TakeDefaults(defaults, {}, model, 3, &params),
              ElementsAre(Pair("num_beams", "4")));
  EXPECT_OK(ValidateParams(model, 3, &params));
}

TEST(GenerationDefaultsTest, EosIsTheFilesOnlyWhereItIsNotTheModels) {
  const char* const config = R"({"eos_token_id": [2, 5]})";
  EXPECT_THAT(ReadDefaults(config, DefaultsOf::kModel)->fields, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults,
                       ReadDefaults(config, DefaultsOf::kGiven));
  GenerationParams params;
  EXPECT_THAT(TakeDefaults(defaults, {}, EnFr(), 3, &params),
              ElementsAre(Pair("eos_token_id", "[2, 5]")));
  EXPECT_THAT(params.eos_token_id, Optional(ElementsAre(2, 5)));
}

TEST(GenerationDefaultsTest, EveryFieldIsAParamOfTheFormat) {
  for (const DefaultName& field : DefaultNames()) {
    ASSERT_NE(FindParamField(field.param), nullptr) << field.name;
    EXPECT_EQ(FindParamField(field.param)->name, field.param);
  }
}

TEST(GenerationDefaultsTest, InCWhatDiffersIsGiven) {
  ASSERT_OK_AND_ASSIGN(const GenerationDefaults defaults,
                       ReadDefaults(kSampling));
  GenerationParams params;
  params.temperature = 0.5;
  const auto given = DifferingParams(params);
  EXPECT_THAT(given, ElementsAre("temperature"));
  TakeDefaults(defaults, given, EnFr(), 3, &params);
  EXPECT_TRUE(params.do_sample);
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.top_k, 20);
}

TEST(GenerationDefaultsTest, WrongValuesAreNamedWithTheirFile) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature": "hot"})",
       "temperature must be a number, got \"hot\""},
      {R"({"temperature": -1})", "temperature must be at least 0, got -1"},
      {R"({"temperature": 1e999})",
       "temperature must be a number within float64, got 1e999"},
      {R"({"exponential_decay_length_penalty": [2, -1e999]})",
       "exponential_decay_length_penalty[1] must be a number within float64, "
       "got -1e999"},
      {R"({"top_p": 1.5})", "top_p must be in (0, 1], got 1.5"},
      {R"({"top_p": 0})", "top_p must be in (0, 1], got 0"},
      {R"({"min_p": 2})", "min_p must be in [0, 1], got 2"},
      {R"({"typical_p": 0})", "typical_p must be in (0, 1], got 0"},
      {R"({"top_k": -1})", "top_k must be at least 0, got -1"},
      {R"({"top_k": 2.5})", "top_k must be an integer, got 2.5"},
      {R"({"do_sample": 1})", "do_sample must be true or false, got 1"},
      {R"({"num_beams": 0})", "num_beams must be at least 1, got 0"},
      {R"({"num_beam_groups": 0})",
       "num_beam_groups must be at least 1, got 0"},
      {R"({"diversity_penalty": -1})",
       "diversity_penalty must be at least 0, got -1"},
      {R"({"num_return_sequences": 0})",
       "num_return_sequences must be at least 1, got 0"},
      {R"({"early_stopping": "now"})",
       "early_stopping must be true, false or \"never\", got \"now\""},
      {R"({"repetition_penalty": 0})",
       "repetition_penalty must be positive and within float32, got 0"},
      {R"({"no_repeat_ngram_size": -2})",
       "no_repeat_ngram_size must be at least 0, got -2"},
      {R"({"bad_words_ids": [[7], []]})",
       "bad_words_ids[1] must not be empty, got []"},
      {R"({"bad_words_ids": [[6000]]})",
       "bad_words_ids[0][0] must be a token id in [0, 6000), got 6000"},
      {R"({"forced_bos_token_id": 6000})",
       "forced_bos_token_id must be a token id in [0, 6000), got 6000"},
      {R"({"forced_eos_token_id": [2, -1]})",
       "forced_eos_token_id[1] must be a token id in [0, 6000), got -1"},
      {R"({"suppress_tokens": [-1]})",
       "suppress_tokens must be a token id in [0, 6000), got -1"},
      {R"({"stop_strings": 7})",
       "stop_strings must be a string or a list of strings, got 7"},
      {R"({"max_new_tokens": 0})", "max_new_tokens must be at least 1, got 0"},
      {R"({"max_length": 0})", "max_length must be at least 1, got 0"},
      {R"({"max_length": "long"})",
       "max_length must be an integer, got \"long\""},
      {R"({"min_length": -1})", "min_length must be at least 0, got -1"},
      {R"({"min_new_tokens": -1})",
       "min_new_tokens must be at least 0, got -1"},
  };
  for (const auto& [config, message] : cases) {
    EXPECT_THAT(ReadDefaults(config),
                StatusIs(kWrongValue, Concat("DIR/gen.json: ", message)))
        << config;
  }
}

TEST(GenerationDefaultsTest, WrongFilesAreRefused) {
  const ScratchDirectory scratch;
  const auto error = [&](std::string_view text) {
    return ReadConfigObject(scratch.Write("gen.json", text)).status();
  };
  EXPECT_THAT(error("nope"),
              StatusIs(kWrongValue, scratch.path("gen.json") +
                                        ": not JSON at byte 0: syntax error"));
  EXPECT_THAT(error("[1]"),
              StatusIs(kWrongValue,
                       scratch.path("gen.json") + ": must be a JSON object"));
  EXPECT_EQ(ReadConfigObject(scratch.path("none.json")).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace espalier::testing
