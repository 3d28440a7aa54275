// Whole answers, as each API has them.
#include "openai/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/answer_writer.h"
#include "openai/call_fields.h"
#include "openai/listing.h"
#include "openai/tokenize.h"
#include "tests/openai/sample_answers.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::CallOf;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::EnFrTokens;
using ::espalier::testing::kSampleHead;
using ::espalier::testing::MakeAnswer;
using ::espalier::testing::MakeHypothesis;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// The answer of a call with hypotheses of these texts, each ended by EOS.
std::string Answer(const Call& call, const std::vector<std::string>& texts,
                   FinishReason reason = FinishReason::kEos) {
  const PromptParts prompt = {
      .tokens = EnFrTokens("Hello"), .text = "Hello", .params = call.params};
  std::vector<std::pair<Hypothesis, std::string>> hypotheses;
  for (const std::string& text : texts) {
    std::vector<TokenId> tokens = EnFrTokens(text);
    if (reason == FinishReason::kEos) tokens.push_back(2);
    hypotheses.push_back(MakeHypothesis(std::move(tokens), reason, call.params,
                                        EnFrTokenizer()));
  }
  const PromptAnswer answer = MakeAnswer(prompt, std::move(hypotheses));
  return WriteAnswer(call, kSampleHead, {&prompt, 1}, {&answer, 1},
                     &EnFrTokenizer());
}

json::object Parsed(const std::string& json) {
  const absl::StatusOr<json::value> value = ParseJson(json);
  EXPECT_OK(value) << json;
  return value->get_object();
}

const json::object& Choice(const json::object& answer, size_t i) {
  return answer.at("choices").get_array().at(i).get_object();
}

TEST(AnswerTest, OfACompletion) {
  EXPECT_EQ(
      Answer(CallOf(Api::kCompletions, ""), {"le chat"}),
      R"({"id":"cmpl-7","object":"text_completion","created":1700000000,)"
      R"("model":"en-fr","choices":[{"index":0,"text":"le chat",)"
      R"("logprobs":null,"finish_reason":"stop","stop_reason":null,)"
      R"("score":-0.75,"cum_log_prob":-1.5}],)"
      R"("usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,)"
      R"("prompt_tokens_details":{"cached_tokens":1}},)"
      R"("espalier":{"steps":3}})");
}

// Pieces of any size add up to the answer, and none is much larger than
// requested.
TEST(AnswerTest, PiecesAreTheWholeAnswer) {
  constexpr std::string_view kManyScores = R"("n": 2, "logprobs": 64, )"
                                           R"("prompt_logprobs": 64)";
  const std::pair<Api, std::string> calls[] = {
      {Api::kCompletions, ""},
      {Api::kCompletions,
       Concat(R"("echo": true, "return_token_ids": true, )", kManyScores)},
      {Api::kChat, R"("n": 2, "logprobs": true, "top_logprobs": 64)"},
      {Api::kTokens, Concat(R"("sampling_params": {)", kManyScores, "}")}};
  for (const auto& [api, fields] : calls) {
    const Call call = CallOf(api, fields);
    PromptParts prompt = {
        .tokens = EnFrTokens("Hello"), .text = "Hello", .params = call.params};
    for (int i = 0; i < 40; ++i) prompt.tokens.push_back(300 + i);
    std::vector<PromptParts> prompts(api == Api::kCompletions ? 3 : 1, prompt);
    std::vector<PromptAnswer> answers;
    for (const PromptParts& parts : prompts) {
      const std::vector<TokenId> output(30, 400);
      const auto hypothesis = MakeHypothesis(output, FinishReason::kLength,
                                             call.params, EnFrTokenizer());
      answers.push_back(MakeAnswer(parts, {hypothesis, hypothesis}));
    }
    const std::string whole =
        WriteAnswer(call, kSampleHead, prompts, answers, &EnFrTokenizer());
    EXPECT_OK(ParseJson(whole)) << whole;
    for (const size_t size : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
      AnswerWriter writer(call, kSampleHead, prompts, answers,
                          &EnFrTokenizer());
      std::string all;
      for (bool goes_on = true; goes_on;) {
        std::string piece;
        goes_on = writer.Append(size, &piece);
        EXPECT_LT(piece.size(), size + (size_t{128} << 10));
        all += piece;
      }
      EXPECT_EQ(all, whole) << size;
      std::string nothing;
      EXPECT_FALSE(writer.Append(size, &nothing));
      EXPECT_EQ(nothing, "");
    }
  }
}

TEST(AnswerTest, BeamIndicesStandBesideTheScores) {
  Hypothesis hypothesis = {.tokens = {7, 8, 2}, .score = -0.5f};
  hypothesis.beam_indices = {0, 1, 0};
  std::string out;
  AppendScores(hypothesis, &out);
  EXPECT_EQ(out, R"(,"score":-0.5,"cum_log_prob":0.0,"beam_indices":[0,1,0])");
}

TEST(AnswerTest, OfAChat) {
  EXPECT_EQ(
      Answer(CallOf(Api::kChat, R"("foo": 1)"), {"le chat"},
             FinishReason::kLength),
      R"({"id":"cmpl-7","object":"chat.completion","created":1700000000,)"
      R"("model":"en-fr","choices":[{"index":0,"message":)"
      R"({"role":"assistant","content":"le chat"},)"
      R"("logprobs":null,"finish_reason":"length","stop_reason":null,)"
      R"("score":-0.5,"cum_log_prob":-1.5}],)"
      R"("usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
      R"("prompt_tokens_details":{"cached_tokens":1}},)"
      R"("warnings":["unknown field \"foo\""],"espalier":{"steps":2}})");
}

TEST(AnswerTest, OfTokens) {
  const std::string answer = Answer(
      CallOf(Api::kTokens, R"("sampling_params": {"n": 2, "logprobs": 1})"),
      {"le", "la"}, FinishReason::kLength);
  const json::object parsed = Parsed(answer);
  EXPECT_EQ(parsed.at("request_id"), "cmpl-7");
  const json::object& second = Choice(parsed, 1);
  EXPECT_EQ(second.at("index"), 1);
  EXPECT_EQ(second.at("token_ids").get_array()[0], EnFrTokens("la")[0]);
  EXPECT_FALSE(second.contains("text"));
  EXPECT_EQ(WriteJson(second.at("logprobs")),
            Concat(R"({"content": [{"token_id": )", EnFrTokens("la")[0],
                   R"(, "logprob": -0.5, "rank": 2, "top_logprobs": )"
                   R"([{"token_id": 300, "logprob": -0.25, "rank": 1}]}]})"));
}

TEST(AnswerTest, CompletionsHaveColumnsOfLogProbs) {
  const json::object parsed = Parsed(
      Answer(CallOf(Api::kCompletions, R"("logprobs": 1)"), {"le chat"}));
  const json::object& log_probs = Choice(parsed, 0).at("logprobs").get_object();
  EXPECT_EQ(WriteJson(log_probs.at("tokens")), R"([" le", " chat", "</s>"])");
  EXPECT_EQ(WriteJson(log_probs.at("text_offset")), "[0, 2, 7]");
  EXPECT_EQ(WriteJson(log_probs.at("token_logprobs")), "[-0.5, -0.5, -0.5]");
  const json::object& top =
      log_probs.at("top_logprobs").get_array()[0].get_object();
  EXPECT_EQ(top.size(), 2) << "the best, and the one that stands there";
  EXPECT_EQ(top.at(" le"), -0.5);
}

TEST(AnswerTest, ChatsHaveTokensWithTheirBytes) {
  const json::object parsed = Parsed(Answer(
      CallOf(Api::kChat, R"("logprobs": true, "top_logprobs": 2)"), {"é"}));
  const json::array& content =
      Choice(parsed, 0).at("logprobs").get_object().at("content").get_array();
  const json::object& first = content[0].get_object();
  EXPECT_EQ(first.at("top_logprobs").get_array().size(), 2);
  std::string bytes;
  for (const json::value& token : content) {
    if (token.get_object().at("token") == "</s>") continue;
    for (const json::value& byte : token.get_object().at("bytes").get_array()) {
      bytes.push_back(static_cast<char>(byte.get_int64()));
    }
  }
  EXPECT_EQ(bytes, " é");
}

TEST(AnswerTest, BytesThatAreNoCharacterAreWrittenAsBytes) {
  Call call = CallOf(Api::kCompletions, R"("logprobs": 0)");
  // <0xE2> is one of the vocabulary's bytes.
  const std::optional<TokenId> byte = EnFrTokenizer().PieceToId("<0xE2>");
  ASSERT_TRUE(byte.has_value());
  const PromptParts prompt = {.tokens = {1}, .params = call.params};
  const PromptAnswer answer =
      MakeAnswer(prompt, {MakeHypothesis({*byte}, FinishReason::kLength,
                                         call.params, EnFrTokenizer())});
  EXPECT_THAT(WriteAnswer(call, kSampleHead, {&prompt, 1}, {&answer, 1},
                          &EnFrTokenizer()),
              HasSubstr(R"("tokens":["bytes:\\xe2"])"));
}

TEST(AnswerTest, EchoPutsThePromptInFront) {
  const json::object parsed =
      Parsed(Answer(CallOf(Api::kCompletions, R"("echo": true, "logprobs": 1)"),
                    {"le chat"}));
  const json::object& choice = Choice(parsed, 0);
  EXPECT_EQ(choice.at("text"), "Hellole chat");
  const json::object& log_probs = choice.at("logprobs").get_object();
  const size_t num_prompt_tokens = EnFrTokens("Hello").size();
  EXPECT_EQ(log_probs.at("tokens").get_array().size(), num_prompt_tokens + 3);
  EXPECT_TRUE(log_probs.at("token_logprobs").get_array()[0].is_null());
  EXPECT_TRUE(log_probs.at("top_logprobs").get_array()[0].is_null());
  EXPECT_EQ(log_probs.at("text_offset").get_array()[num_prompt_tokens], 5);
  EXPECT_EQ(log_probs.at("text_offset").get_array()[num_prompt_tokens + 1], 7);
  EXPECT_FALSE(choice.contains("prompt_logprobs"));
}

// With the server's default for logprobs, only the generated text has
// log-probabilities, and it begins after the prompt.
TEST(AnswerTest, OffsetsCountTheEchoWhereItHasNoLogProbabilities) {
  Call call = CallOf(Api::kCompletions, R"("echo": true, "logprobs": 1)");
  call.params.prompt_logprobs.reset();
  const json::object parsed = Parsed(Answer(call, {"le chat"}));
  EXPECT_EQ(Choice(parsed, 0).at("text"), "Hellole chat");
  EXPECT_EQ(WriteJson(Choice(parsed, 0).at("logprobs").at("text_offset")),
            "[5, 7, 12]");
}

TEST(AnswerTest, AnEchoedPromptAloneHasNoTokensOfItsOwn) {
  const json::object parsed =
      Parsed(Answer(CallOf(Api::kCompletions,
                           R"("echo": true, "logprobs": 1, "max_tokens": 0)"),
                    {"le"}, FinishReason::kLength));
  const json::object& choice = Choice(parsed, 0);
  EXPECT_EQ(choice.at("text"), "Hello");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("logprobs").get_object().at("tokens").get_array().size(),
            EnFrTokens("Hello").size());
  EXPECT_EQ(parsed.at("usage").get_object().at("completion_tokens"), 0);
}

TEST(AnswerTest, StopsAreNamed) {
  const auto reason = [](const std::string& fields, const std::string& text) {
    return WriteJson(Choice(Parsed(Answer(CallOf(Api::kCompletions, fields),
                                          {text}, FinishReason::kStop)),
                            0)
                         .at("stop_reason"));
  };
  EXPECT_EQ(reason(R"("stop": ["chien", "chat"])", "le chat noir"), "\"chat\"");
  EXPECT_EQ(reason(R"("stop": ["chat"], "include_stop": true)", "le chat"),
            "\"chat\"");
  const TokenId last = EnFrTokens("le chat").back();
  EXPECT_EQ(reason(Concat(R"("stop_token_ids": [)", last, "]"), "le chat"),
            Concat(last));
  EXPECT_EQ(reason("", "le chat"), "null");
}

TEST(AnswerTest, SeveralPromptsHaveTheirChoicesOneAfterTheOther) {
  Call call = CallOf(Api::kCompletions, R"("n": 2, "return_token_ids": true)");
  std::vector<PromptParts> prompts;
  std::vector<PromptAnswer> answers;
  for (const char* text : {"le", "la"}) {
    prompts.push_back({.tokens = EnFrTokens(text), .params = call.params});
    const auto hypothesis = MakeHypothesis(
        EnFrTokens(text), FinishReason::kLength, call.params, EnFrTokenizer());
    answers.push_back(MakeAnswer(prompts.back(), {hypothesis, hypothesis}));
    answers.back().result.seed = 5;
  }
  const json::object parsed = Parsed(
      WriteAnswer(call, kSampleHead, prompts, answers, &EnFrTokenizer()));
  EXPECT_EQ(Choice(parsed, 3).at("index"), 3);
  EXPECT_EQ(Choice(parsed, 3).at("text"), "la");
  EXPECT_FALSE(Choice(parsed, 3).contains("prompt_token_ids"));
  EXPECT_EQ(Choice(parsed, 2).at("prompt_token_ids").get_array()[0],
            EnFrTokens("la")[0]);
  EXPECT_EQ(parsed.at("usage").get_object().at("prompt_tokens"), 2);
  EXPECT_EQ(
      WriteJson(parsed.at("espalier")),
      R"({"prompts": [{"steps": 1, "seed": 5}, {"steps": 1, "seed": 5}]})");
}

TEST(AnswerTest, WithoutATokenizerThereAreIdsAlone) {
  const Call call = CallOf(Api::kCompletions, R"("logprobs": 0)");
  const PromptParts prompt = {.tokens = {1, 2}, .params = call.params};
  PromptAnswer answer =
      MakeAnswer(prompt, {MakeHypothesis({7, 8}, FinishReason::kLength,
                                         call.params, EnFrTokenizer())});
  answer.texts.clear();
  const json::object parsed = Parsed(
      WriteAnswer(call, kSampleHead, {&prompt, 1}, {&answer, 1}, nullptr));
  EXPECT_EQ(WriteJson(Choice(parsed, 0).at("token_ids")), "[7, 8]");
  EXPECT_EQ(
      WriteJson(Choice(parsed, 0).at("logprobs").get_object().at("tokens")),
      R"(["token_id:7", "token_id:8"])");
}

TEST(AnswerTest, PromptLogProbsAreVllms) {
  const json::object parsed = Parsed(
      Answer(CallOf(Api::kCompletions, R"("prompt_logprobs": 1)"), {"le"}));
  const json::array& log_probs =
      Choice(parsed, 0).at("prompt_logprobs").get_array();
  EXPECT_EQ(log_probs.size(), EnFrTokens("Hello").size());
  EXPECT_TRUE(log_probs[0].is_null());
  const std::string token = Concat(EnFrTokens("Hello")[1]);
  const json::object& place = log_probs[1].get_object();
  EXPECT_EQ(place.at(token).get_object().at("logprob"), -0.5);
  EXPECT_EQ(place.at(token).get_object().at("rank"), 2);
  EXPECT_EQ(place.at("300").get_object().at("rank"), 1);
}

TEST(AnswerTest, NoChanceIsANumber) {
  const Call call = CallOf(Api::kCompletions, R"("logprobs": 0)");
  const PromptParts prompt = {.tokens = {1}, .params = call.params};
  PromptAnswer answer =
      MakeAnswer(prompt, {MakeHypothesis({7}, FinishReason::kLength,
                                         call.params, EnFrTokenizer())});
  answer.result.hypotheses[0].logprobs[0].log_prob =
      -std::numeric_limits<float>::infinity();
  EXPECT_THAT(WriteAnswer(call, kSampleHead, {&prompt, 1}, {&answer, 1},
                          &EnFrTokenizer()),
              HasSubstr(R"("token_logprobs":[-9999.0])"));
}

TEST(ListingTest, ModelsAreAList) {
  const ModelCard model = {
      .id = "en-fr",
      .created = 17,
      .root = "models/en-fr",
      .max_model_len = 1024,
      .templates = {"en-fr", "fr-en"},
      .has_traces = true,
      .limits = {.max_n = 7, .max_num_beams = 64, .max_tokens = 512}};
  EXPECT_EQ(WriteModels({&model, 1}),
            R"({"object":"list","data":[{"id":"en-fr","object":"model",)"
            R"("created":17,"owned_by":"espalier","root":"models/en-fr",)"
            R"("parent":null,"max_model_len":1024,)"
            R"("espalier":{"task":"generate","chat":false,)"
            R"("templates":["en-fr","fr-en"],"traces":true,"max_num_beams":64,)"
            R"("max_n":7,"max_tokens":512}}]})");
}

TEST(ListingTest, ASpeechModelTellsWhatItCan) {
  ModelCard model;
  model.speech = SpeechCard{
      .has_words = true, .max_audio_seconds = 60, .max_audio_bytes = 1 << 20};
  EXPECT_THAT(WriteModel(model),
              HasSubstr(R"("espalier":{"task":"transcribe","words":true,)"
                        R"("translates":false,"max_audio_seconds":60,)"
                        R"("max_audio_bytes":1048576,"chat":false,)"));
}

// Whatever a completion or a chat makes its prompt of is taken, and means the
// same.
TEST(TokenizeTest, TakesWhatPromptsAreMadeOf) {
  ASSERT_OK_AND_ASSIGN(
      const TokenizeCall text,
      ReadTokenizeCall(R"({"strict": true, "prompt": "a", "template": "fr-en",
                           "truncate_prompt_tokens": 3,
                           "truncation_side": "right",
                           "decoder_input_ids": [7, 8],
                           "forced_bos_token_id": 9})"));
  EXPECT_EQ(text.call.api, Api::kCompletions);
  EXPECT_EQ(text.call.template_name, "fr-en");
  EXPECT_EQ(text.call.truncate_prompt_tokens, 3);
  EXPECT_EQ(text.call.truncation_side, TruncationSide::kRight);
  EXPECT_THAT(text.call.params.decoder_prompt_tokens, ElementsAre(7, 8));
  EXPECT_EQ(text.call.params.forced_bos_token_id, 9);
  EXPECT_EQ(text.call.NameOf("decoder_prompt_tokens"), "decoder_input_ids");
  const std::string messages =
      R"("messages": [{"role": "user", "content": "a"}])";
  ASSERT_OK_AND_ASSIGN(
      const TokenizeCall chat,
      ReadTokenizeCall(Concat(R"({"strict": true, "decoder_prompt": "Il",
                                  "reasoning_effort": "low", )",
                              messages, "}")));
  EXPECT_EQ(chat.call.api, Api::kChat);
  EXPECT_EQ(chat.call.params.decoder_prompt, "Il");
  EXPECT_EQ(chat.call.chat->more.at("reasoning_effort"), "low");
  EXPECT_THAT(
      ReadTokenizeCall(Concat(R"({"template": "fr-en", )", messages, "}")),
      testing::StatusIs(kInvalid,
                        "template needs a prompt that is a text, got "
                        "\"fr-en\""));
  EXPECT_THAT(
      ReadTokenizeCall(R"({"prompt": "a", "template": "fr-en",
                           "add_special_tokens": false})"),
      testing::StatusIs(kInvalid,
                        "add_special_tokens must be true with template, got "
                        "false"));
}

// So that a client's prompt can be shown with the fields that it has anyway.
TEST(TokenizeTest, KnowsEveryFieldOfATemplate) {
  for (const std::string_view field :
       {"add_generation_prompt", "add_special_tokens", "chat_template",
        "chat_template_kwargs", "continue_final_message", "documents",
        "reasoning_effort", "tools", "truncate_prompt_tokens",
        "truncation_side"}) {
    EXPECT_TRUE(FindCallField(field, kInChat)) << field;
    EXPECT_TRUE(FindCallField(field, kInTokenize)) << field;
  }
}

TEST(TokenizeTest, IsVllms) {
  ASSERT_OK_AND_ASSIGN(
      const TokenizeCall call,
      ReadTokenizeCall(R"({"prompt": "le chat", "return_token_strs": true,
                           "add_special_tokens": false})"));
  EXPECT_EQ(call.call.add_special_tokens, false);
  EXPECT_THAT(call.call.prompts,
              ElementsAre(TextOrTokens(std::string("le chat"))));
  Tokenized tokenized = {.tokens = EnFrTokens("le chat")};
  EXPECT_EQ(WriteTokenized(call, tokenized, 1024, EnFrTokenizer()),
            Concat(R"({"count":2,"max_model_len":1024,"tokens":[)",
                   EnFrTokens("le chat")[0], ",", EnFrTokens("le chat")[1],
                   R"(],"token_strs":[" le"," chat"]})"));
  tokenized.decoder_prompt = EnFrTokens("le");
  EXPECT_THAT(
      WriteTokenized(call, tokenized, 1024, EnFrTokenizer()),
      EndsWith(Concat(R"(],"decoder_prompt_tokens":[)", EnFrTokens("le")[0],
                      R"(],"decoder_prompt_token_strs":[" le"]})")));
  ASSERT_OK_AND_ASSIGN(const DetokenizeCall back,
                       ReadDetokenizeCall(R"({"tokens": [7, 8], "x": 1})"));
  EXPECT_THAT(back.tokens, ElementsAre(7, 8));
  EXPECT_EQ(WriteDetokenized(back, "a"),
            R"({"prompt":"a","warnings":["unknown field \"x\""]})");
  EXPECT_THAT(ReadTokenizeCall("{}"),
              testing::StatusIs(kInvalid,
                                "prompt or messages must be there, one of the "
                                "two, got none"));
}

}  // namespace
}  // namespace espalier::openai
