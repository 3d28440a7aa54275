#include "request/decoder_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "request/request.h"
#include "tests/request/take_defaults.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr auto kInvalidPrompt = absl::StatusCode::kInvalidArgument;
constexpr TokenId kDecoderStart = 3;

ModelDescription Translator() {
  ModelDescription model = {.vocab_size = EnFrTokenizer().vocab_size(),
                            .max_context = 20,
                            .eos_token_ids = {2},
                            .num_pages = 100};
  model.encoder = {.max_source_tokens = 9, .decoder_prompt = {kDecoderStart}};
  return model;
}

std::vector<int64_t> SpellingOf(const std::string& text) {
  const std::vector<TokenId> ids = EnFrTokenizer().EncodeOutput(text).value();
  return {ids.begin(), ids.end()};
}

GenerationParams BegunBy(const std::string& text) {
  GenerationParams params;
  params.decoder_prompt = text;
  return params;
}

absl::StatusOr<NamedValues> ResolvePrompt(
    GenerationParams* params, const GenerationDefaults& defaults = {}) {
  return ResolveDecoderPrompt(&EnFrTokenizer(), Translator(), defaults, params);
}

absl::Status CheckPrompt(GenerationParams params,
                         const ModelDescription& model = Translator()) {
  Request request = {{7, 8}, std::move(params)};
  return ValidateRequest(model, &request);
}

TEST(DecoderPromptTest, ATextBecomesTheTokensThatSpellIt) {
  GenerationParams params = BegunBy("Il pleut");
  ASSERT_OK_AND_ASSIGN(const NamedValues taken, ResolvePrompt(&params));
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(params.decoder_prompt, "");
  EXPECT_EQ(params.decoder_prompt_tokens, SpellingOf("Il pleut"));
  EXPECT_OK(CheckPrompt(params));
}

TEST(DecoderPromptTest, TheForcedFirstTokenStandsInFrontOfAText) {
  std::vector<int64_t> expected = SpellingOf("Il");
  expected.insert(expected.begin(), 7);
  GenerationParams given = BegunBy("Il");
  given.forced_bos_token_id = 7;
  ASSERT_OK_AND_ASSIGN(NamedValues taken, ResolvePrompt(&given));
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(given.decoder_prompt_tokens, expected);
  EXPECT_OK(CheckPrompt(given));  // it is forced no more

  GenerationDefaults defaults;
  defaults.params.forced_bos_token_id = 7;
  GenerationParams open = BegunBy("Il");
  ASSERT_OK_AND_ASSIGN(taken, ResolvePrompt(&open, defaults));
  EXPECT_THAT(taken, ElementsAre(Pair("forced_bos_token_id", "7")));
  EXPECT_EQ(open.decoder_prompt_tokens, expected);
}

TEST(DecoderPromptTest, TheDecodersStartStandsInFrontOnce) {
  const ModelDescription model = Translator();
  GenerationParams params;
  const auto all = [&](std::vector<int64_t> tokens) {
    params.decoder_prompt_tokens = std::move(tokens);
    const std::vector<TokenId> read = DecoderPromptOf(model, params);
    EXPECT_EQ(NumContextTokens(model, 5, params), std::ssize(read));
    return read;
  };
  EXPECT_THAT(all({}), ElementsAre(kDecoderStart));
  EXPECT_THAT(all({kDecoderStart}), ElementsAre(kDecoderStart));
  EXPECT_THAT(all({7, 8}), ElementsAre(kDecoderStart, 7, 8));
  EXPECT_THAT(all({kDecoderStart, 7, 8}), ElementsAre(kDecoderStart, 7, 8));
  EXPECT_THAT(all({7, kDecoderStart}),
              ElementsAre(kDecoderStart, 7, kDecoderStart));
  ModelDescription decoder = model;
  decoder.encoder.reset();
  EXPECT_THAT(DecoderPromptOf(decoder, {}), IsEmpty());
  EXPECT_EQ(NumContextTokens(decoder, 5, {}), 5);
}

// As of Whisper, whose prompts may begin with earlier text.
TEST(DecoderPromptTest, IsAllThatADecoderOfSpeechBeginsWith) {
  ModelDescription model = Translator();
  model.encoder->features = FeatureShape{10, 4};
  GenerationParams params;
  const auto all = [&](std::vector<int64_t> tokens) {
    params.decoder_prompt_tokens = std::move(tokens);
    const std::vector<TokenId> read = DecoderPromptOf(model, params);
    EXPECT_EQ(NumContextTokens(model, 5, params), std::ssize(read));
    return read;
  };
  EXPECT_THAT(all({}), ElementsAre(kDecoderStart));
  EXPECT_THAT(all({kDecoderStart, 7}), ElementsAre(kDecoderStart, 7));
  const std::vector<TokenId> read = all({7, kDecoderStart, 8});
  EXPECT_THAT(read, ElementsAre(7, kDecoderStart, 8));
  EXPECT_THAT(AfterStart(model, read), ElementsAre(7, kDecoderStart, 8));
}

TEST(DecoderPromptTest, ItTakesRoomInTheContext) {
  GenerationParams params;
  params.decoder_prompt_tokens.assign(15, 7);
  params.max_new_tokens = 4;
  EXPECT_OK(CheckPrompt(params));
  params.max_new_tokens = 5;
  EXPECT_THAT(CheckPrompt(params),
              StatusIs(kInvalidPrompt,
                       "max_new_tokens must be at most 4 (the decoder's "
                       "context of 20 less 16 tokens that it begins with), "
                       "got 5"));
  params.decoder_prompt_tokens.assign(19, 7);
  EXPECT_THAT(
      CheckPrompt(params),
      StatusIs(kInvalidPrompt,
               "decoder_prompt_tokens must have at most 18 tokens (the "
               "decoder's context of 20 less 1 token that it begins with and "
               "one to generate), got 19"));
  Request request = {{7}, {}};
  request.params.decoder_prompt_tokens.assign(15, 7);
  ASSERT_OK(ValidateRequest(Translator(), &request));
  EXPECT_EQ(request.params.max_new_tokens, 4);
}

// By its own name, whatever it becomes.
TEST(DecoderPromptTest, ATextThatLeavesNoRoomIsNamed) {
  const auto repeated = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "Il pleut. ";
    return text;
  };
  const size_t num_tokens = SpellingOf("Il pleut. Il pleut. Il pleut. ").size();
  ModelDescription model = Translator();
  const auto resolve = [&](const std::string& text,
                           std::optional<int64_t> forced = {}) {
    GenerationParams params = BegunBy(text);
    params.forced_bos_token_id = forced;
    const GenerationParams before = params;
    const absl::Status status =
        ResolveDecoderPrompt(&EnFrTokenizer(), model, {}, &params).status();
    if (status.ok()) {
      EXPECT_OK(CheckPrompt(params, model));
    } else {
      EXPECT_EQ(params, before);
    }
    return status;
  };
  // The decoder's start, and one token to generate.
  model.max_context = static_cast<int>(num_tokens) + 2;
  EXPECT_OK(resolve(repeated(3)));
  EXPECT_THAT(
      resolve(repeated(3), 7),
      StatusIs(kInvalidPrompt,
               Concat("decoder_prompt must have at most ", num_tokens - 1,
                      " tokens (the decoder's context of ", num_tokens + 2,
                      " less 2 tokens that it begins with and one to "
                      "generate), got ",
                      num_tokens)));
  --model.max_context;
  EXPECT_THAT(
      resolve(repeated(3)),
      StatusIs(kInvalidPrompt,
               Concat("decoder_prompt must have at most ", num_tokens - 1,
                      " tokens (the decoder's context of ", num_tokens + 1,
                      " less 1 token that it begins with and one to "
                      "generate), got ",
                      num_tokens)));
  // One of far more tokens is not counted.
  EXPECT_THAT(resolve(repeated(2000)),
              StatusIs(kInvalidPrompt,
                       HasSubstr("to generate), got a text of 20000 bytes")));
}

TEST(DecoderPromptTest, DefaultsOfLengthsLeaveRoomForIt) {
  GenerationDefaults defaults;
  defaults.fields = {{"forced_bos_token_id", "7"}, {"max_length", "12"}};
  defaults.params.forced_bos_token_id = 7;
  defaults.max_length = 12;
  GenerationParams params;
  EXPECT_THAT(
      TakeDefaults(defaults, {}, Translator(), 2, &params),
      ElementsAre(Pair("forced_bos_token_id", "7"), Pair("max_length", "12")));
  EXPECT_EQ(params.max_new_tokens, 11);
  // transformers forces the second token of the decoder.
  params = {};
  params.decoder_prompt_tokens = {7, 8, 9};
  EXPECT_THAT(TakeDefaults(defaults, {}, Translator(), 2, &params),
              ElementsAre(Pair("max_length", "12")));
  EXPECT_EQ(params.max_new_tokens, 8);
  EXPECT_THAT(params.decoder_prompt_tokens, ElementsAre(7, 8, 9));
  // After the decoder's start alone it does.
  params = {};
  params.decoder_prompt_tokens = {kDecoderStart};
  EXPECT_THAT(
      TakeDefaults(defaults, {}, Translator(), 2, &params),
      ElementsAre(Pair("forced_bos_token_id", "7"), Pair("max_length", "12")));
  EXPECT_OK(CheckPrompt(params));
}

TEST(DecoderPromptTest, WhatHasNoMeaningIsRefused) {
  const auto unresolved = [&](GenerationParams params) {
    const GenerationParams before = params;
    const absl::Status status = ResolvePrompt(&params).status();
    EXPECT_EQ(params, before);
    return status;
  };
  GenerationParams params = BegunBy("Il");
  params.decoder_prompt_tokens = {7};
  EXPECT_THAT(unresolved(params),
              StatusIs(kInvalidPrompt,
                       "decoder_prompt and decoder_prompt_tokens both say how "
                       "the output begins: give one of the two, got \"Il\" "
                       "and 1 token"));
  EXPECT_THAT(CheckPrompt(params),
              StatusIs(kInvalidPrompt, HasSubstr("give one of the two")));
  EXPECT_THAT(unresolved(BegunBy("\xff")),
              StatusIs(kInvalidPrompt, "decoder_prompt is not UTF-8"));
  EXPECT_THAT(unresolved(BegunBy(" ")),
              StatusIs(kInvalidPrompt,
                       "decoder_prompt must not be blank, got \" \"; leave it "
                       "out where nothing is to begin the output"));
  params = BegunBy("Il");
  params.forced_bos_token_id = 1 << 20;
  EXPECT_THAT(unresolved(params),
              StatusIs(kInvalidPrompt, HasSubstr("forced_bos_token_id")));
  params = BegunBy("Il");
  EXPECT_THAT(
      ResolveDecoderPrompt(nullptr, Translator(), {}, &params),
      StatusIs(kInvalidPrompt, HasSubstr("decoder_prompt must be empty "
                                         "without a tokenizer, which")));
  EXPECT_THAT(CheckPrompt(params),
              StatusIs(kInvalidPrompt, HasSubstr("without a tokenizer")));
  params = {};
  params.decoder_prompt_tokens = {7, -1};
  EXPECT_THAT(
      CheckPrompt(params),
      StatusIs(kInvalidPrompt, HasSubstr("decoder_prompt_tokens[1] must be a "
                                         "token id")));
  params.decoder_prompt_tokens = {7};
  params.forced_bos_token_id = 8;
  EXPECT_THAT(CheckPrompt(params),
              StatusIs(kInvalidPrompt,
                       "forced_bos_token_id must be unset with "
                       "decoder_prompt_tokens, which say what comes "
                       "first, got 8"));
}

// Behind the prompt and what its template ends it with.
TEST(DecoderPromptTest, WithoutAnEncoderItEndsThePrompt) {
  ModelDescription decoder = Translator();
  decoder.encoder.reset();
  Request request = {.prompt_tokens = {1, 4, 7, 5},
                     .params = BegunBy("Il"),
                     .num_continued = 0};
  ASSERT_OK(
      ResolveDecoderPrompt(&EnFrTokenizer(), decoder, {}, &request.params));
  const std::vector<int64_t> spelt = SpellingOf("Il");
  EXPECT_EQ(request.params.decoder_prompt_tokens, spelt);
  ASSERT_OK(ValidateRequest(decoder, &request));
  std::vector<TokenId> expected = {1, 4, 7, 5};
  expected.insert(expected.end(), spelt.begin(), spelt.end());
  EXPECT_EQ(request.prompt_tokens, expected);
  EXPECT_EQ(request.num_continued, spelt.size());
  EXPECT_THAT(request.params.decoder_prompt_tokens, ::testing::IsEmpty());
}

TEST(DecoderPromptTest, ItsTextIsWhatItsTokensSpell) {
  const auto text = [](std::vector<int64_t> tokens) {
    return DecoderPromptText(EnFrTokenizer(), tokens);
  };
  EXPECT_EQ(text({}).value(), "");
  EXPECT_EQ(text(SpellingOf("Il pleut")).value(), "Il pleut");
  EXPECT_THAT(text({-1}).status(),
              StatusIs(kInvalidPrompt, HasSubstr("token -1")));
}

TEST(DecoderPromptTest, PaddingWithoutAPositionIsRefusedByItsPlace) {
  ModelDescription model = Translator();
  model.encoder->token_without_position = 8;
  EXPECT_THAT(CheckPrompt({}, model),
              StatusIs(kInvalidPrompt,
                       HasSubstr("prompt_tokens[1] must not be the model's "
                                 "padding, which has no position, got 8")));
  Request request = {{7}, {}};
  request.params.decoder_prompt_tokens = {kDecoderStart, 9, 8};
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(kInvalidPrompt,
                       HasSubstr("decoder_prompt_tokens[2] must not be the "
                                 "model's padding")));
  request = {{7}, {}};
  request.continuations = {{9}, {9, 8}};
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(kInvalidPrompt,
                       HasSubstr("continuations[1][1] must not be the model's "
                                 "padding, which has no position, got 8")));
  // A decoder may start with it: transformers gives the next token the position
  // that it has here.
  request = {{7}, {}};
  model.encoder->decoder_prompt = {8};
  request.params.decoder_prompt_tokens = {8, 9};
  EXPECT_OK(ValidateRequest(model, &request));
}

// A constraint begins after the token, which then is no part of its text.
TEST(DecoderPromptTest, ATemplatesFirstOutputIsForcedOrBeginsTheOutput) {
  const auto force = [](const GenerationParams& given) {
    GenerationParams params = given;
    const std::string_view field = ForceFirstOutput(Translator(), 7, &params);
    return std::pair(field, params);
  };
  const auto [field, params] = force({});
  EXPECT_EQ(field, "forced_bos_token_id");
  EXPECT_EQ(params.forced_bos_token_id, 7);
  GenerationParams given;
  given.decoder_prompt_tokens = {kDecoderStart};
  EXPECT_EQ(force(given).second.forced_bos_token_id, 7);
  given.decoder_prompt_tokens = {kDecoderStart, 9};
  EXPECT_EQ(force(given), std::pair(std::string_view(), given));
  given = {};
  given.forced_bos_token_id = 9;
  EXPECT_EQ(force(given), std::pair(std::string_view(), given));
  given = {};
  given.allowed_sequences = {{9}};
  EXPECT_THAT(force(given).second.decoder_prompt_tokens, ElementsAre(7));
  given = {};
  given.constraint = ConstraintParams{.regex = "a"};
  const auto [field_before_text, before_text] = force(given);
  EXPECT_EQ(field_before_text, "decoder_prompt_tokens");
  EXPECT_THAT(before_text.decoder_prompt_tokens, ElementsAre(7));
  EXPECT_EQ(before_text.forced_bos_token_id, std::nullopt);
  // ResolveDecoderPrompt puts it in front of the text.
  given.decoder_prompt = "b";
  EXPECT_EQ(force(given).second.forced_bos_token_id, 7);
}

}  // namespace
}  // namespace espalier::testing
