// Streams: what their events add up to, and in which order they come.
#include "openai/chunk_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/openai/sample_answers.h"
#include "tests/openai/stream_events.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::CallOf;
using ::espalier::testing::ChoicesOf;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::EnFrTokens;
using ::espalier::testing::EventsOf;
using ::espalier::testing::kSampleHead;
using ::espalier::testing::MakeAnswer;
using ::espalier::testing::MakeHypothesis;
using ::espalier::testing::MakeLogProbs;
using ::espalier::testing::StreamedChoice;
using ::espalier::testing::WholeChoice;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PromptParts PromptOf(const Call& call) {
  return {
      .tokens = EnFrTokens("Hello"), .text = "Hello", .params = call.params};
}

// A made-up search: its events while it runs, and its end.
struct Run {
  std::vector<StreamEvent> events;
  PromptAnswer answer;
};

// Some of these, in the order of random draws; ends where a stop does.
std::vector<TokenId> RandomTokens(const GenerationParams& params) {
  const auto stops = StopStrings::Create(params.stop);
  TextStream stream(EnFrTokenizer(), *stops,
                    {.include_stop = params.include_stop});
  std::vector<TokenId> tokens;
  const int length = *rc::gen::inRange(1, 12);
  while (std::ssize(tokens) < length && !stream.stopped()) {
    const int kind = *rc::gen::inRange(0, 3);
    tokens.push_back(*rc::gen::inRange(0, kind == 0 ? 270 : 6000));
    stream.Feed(tokens.back());
  }
  return tokens;
}

// Returns a finish reason that depends only on the tokens.
FinishReason ReasonOf(const std::vector<TokenId>& tokens) {
  constexpr FinishReason kReasons[] = {FinishReason::kEos, FinishReason::kStop,
                                       FinishReason::kLength,
                                       FinishReason::kDeadline};
  return kReasons[std::accumulate(tokens.begin(), tokens.end(), 0) % 4];
}

// `tokens` and their text in events of random sizes, which `make` makes.
template <typename Event, typename Make>
std::vector<Event> Split(const std::vector<TokenId>& tokens,
                         const GenerationParams& params, bool is_whole,
                         const Make& make) {
  const auto stops = StopStrings::Create(params.stop);
  TextStream stream(EnFrTokenizer(), *stops,
                    {.include_stop = params.include_stop});
  std::vector<Event> events;
  for (size_t i = 0; i < tokens.size();) {
    Event event = make();
    const size_t end =
        std::min<size_t>(tokens.size(), i + *rc::gen::inRange(1, 4));
    for (; i < end; ++i) {
      event.tokens.push_back(tokens[i]);
      event.text += stream.Feed(tokens[i]).text;
    }
    if (i == tokens.size() && is_whole) event.text += stream.Finish().text;
    events.push_back(std::move(event));
  }
  return events;
}

Run RunSamples(const PromptParts& prompt) {
  const int64_t n = prompt.params.num_return_sequences;
  const int64_t num_samples = prompt.params.best_of.value_or(n);
  std::vector<std::vector<TokenId>> samples;
  std::vector<std::vector<SampleEvent>> told;
  const bool has_log_probs =
      prompt.params.logprobs && *rc::gen::arbitrary<bool>();
  for (int i = 0; i < num_samples; ++i) {
    samples.push_back(RandomTokens(prompt.params));
    told.push_back(Split<SampleEvent>(
        samples[i], prompt.params,
        /*is_whole=*/true, [&] { return SampleEvent{.sample = i}; }));
    told.back().back().finish_reason = ReasonOf(samples[i]);
    if (!has_log_probs) continue;
    for (SampleEvent& event : told.back()) {
      event.logprobs =
          MakeLogProbs(event.tokens, static_cast<int>(*prompt.params.logprobs));
    }
  }
  Run run;
  while (true) {
    std::vector<size_t> open;
    for (size_t i = 0; i < told.size(); ++i) {
      if (!told[i].empty()) open.push_back(i);
    }
    if (open.empty()) break;
    auto& events = told[*rc::gen::elementOf(open)];
    run.events.push_back(events.front());
    events.erase(events.begin());
  }
  std::vector<std::pair<Hypothesis, std::string>> hypotheses;
  for (size_t i = 0; i < samples.size(); ++i) {
    hypotheses.push_back(MakeHypothesis(samples[i], ReasonOf(samples[i]),
                                        prompt.params, EnFrTokenizer()));
    hypotheses.back().first.sample = static_cast<int>(i);
  }
  std::ranges::rotate(hypotheses,
                      hypotheses.begin() + *rc::gen::inRange<int>(0, n));
  hypotheses.resize(n);
  run.answer = MakeAnswer(prompt, std::move(hypotheses));
  return run;
}

Run RunBeams(const PromptParts& prompt) {
  const std::vector<TokenId> trunk = RandomTokens(prompt.params);
  std::vector<std::pair<Hypothesis, std::string>> hypotheses;
  const int64_t n = prompt.params.num_return_sequences;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<TokenId> tokens = trunk;
    if (i > 0) tokens.push_back(static_cast<TokenId>(500 + i));
    hypotheses.push_back(MakeHypothesis(tokens, ReasonOf(tokens), prompt.params,
                                        EnFrTokenizer()));
  }
  std::vector<TokenId> stable = trunk;
  if (n > 1) stable.resize(*rc::gen::inRange<size_t>(0, trunk.size() + 1));
  Run run;
  for (StablePrefixEvent& event : Split<StablePrefixEvent>(
           stable, prompt.params, n == 1, [] { return StablePrefixEvent(); })) {
    run.events.emplace_back(std::move(event));
    if (*rc::gen::arbitrary<bool>()) {
      run.events.emplace_back(
          BeamsEvent{.num_steps = 3, .beams = {{.tokens = trunk}}});
    }
  }
  run.answer = MakeAnswer(prompt, std::move(hypotheses));
  return run;
}

std::string RandomFields(Api api) {
  const auto flip = [] { return *rc::gen::arbitrary<bool>(); };
  std::string own;  // fields of sampling_params (tokens' API)
  const bool has_beams = flip();
  own += Concat(R"("n": )", *rc::gen::inRange(1, 4));
  if (has_beams) own += R"(, "num_beams": 4)";
  if (!has_beams && flip()) own += R"(, "best_of": 5)";
  if (flip()) own += R"(, "stop": ["e", "le"])";
  std::string more;
  if (flip()) more += R"(, "return_token_ids": true)";
  if (flip()) {
    more += R"(, "stream_options": {"include_usage": true,
                                    "continuous_usage_stats": true})";
  }
  if (has_beams && flip()) more += R"(, "stream_beams": true)";
  if (api == Api::kChat && flip()) {
    own += R"(, "logprobs": true, "top_logprobs": 2)";
  }
  if (api != Api::kChat && flip()) own += R"(, "logprobs": 2)";
  if (api == Api::kCompletions && flip()) more += R"(, "echo": true)";
  if (api != Api::kTokens) return own + more;
  return Concat(R"("sampling_params": {)", own, "}", more);
}

// All that is written of these runs, their events interleaved.
std::string Stream(const Call& call, const std::vector<PromptParts>& prompts,
                   std::vector<Run>* runs) {
  ChunkWriter writer(call, kSampleHead, prompts, &EnFrTokenizer());
  std::string stream = writer.Begin();
  std::vector<size_t> num_told(runs->size());
  std::vector<size_t> open(runs->size());
  std::iota(open.begin(), open.end(), 0);
  while (!open.empty()) {
    const size_t prompt = *rc::gen::elementOf(open);
    const Run& run = (*runs)[prompt];
    if (num_told[prompt] < run.events.size()) {
      stream +=
          writer.Add(static_cast<int>(prompt), run.events[num_told[prompt]++]);
    } else {
      stream += writer.Finish(static_cast<int>(prompt), run.answer);
      std::erase(open, prompt);
    }
  }
  return stream + writer.End();
}

void ExpectSame(const StreamedChoice& streamed, const StreamedChoice& whole) {
  RC_ASSERT(streamed.has_ended);
  RC_ASSERT(streamed.text == whole.text);
  RC_ASSERT(streamed.token_ids == whole.token_ids);
  RC_ASSERT(streamed.log_probs == whole.log_probs);
  json::object fields = streamed.fields;
  json::object expected = whole.fields;
  fields.erase("index");
  expected.erase("index");
  RC_ASSERT(fields == expected);
}

RC_GTEST_PROP(ChunkWriterProperty, EventsAddUpToTheWholeAnswer, ()) {
  const Api api =
      *rc::gen::element(Api::kCompletions, Api::kChat, Api::kTokens);
  const Call call = CallOf(api, R"("stream": true, )" + RandomFields(api));
  const int num_prompts =
      api == Api::kCompletions ? *rc::gen::inRange(1, 4) : 1;
  std::vector<PromptParts> prompts;
  std::vector<Run> runs;
  for (int i = 0; i < num_prompts; ++i) {
    prompts.push_back(PromptOf(call));
    // As if logprobs were the server's default.
    if (*rc::gen::arbitrary<bool>()) {
      prompts[i].params.prompt_logprobs.reset();
    }
    runs.push_back(IsBeamSearch(call.params) ? RunBeams(prompts[i])
                                             : RunSamples(prompts[i]));
  }
  const std::vector<json::value> events =
      EventsOf(Stream(call, prompts, &runs));
  RC_ASSERT(events.back() == "[DONE]");

  std::vector<PromptAnswer> answers;
  for (const Run& run : runs) answers.push_back(run.answer);
  const json::value whole = *ParseJson(
      WriteAnswer(call, kSampleHead, prompts, answers, &EnFrTokenizer()));
  const json::array& choices = whole.at("choices").get_array();
  const std::map<int64_t, StreamedChoice> streamed = ChoicesOf(events);
  RC_ASSERT(streamed.size() == choices.size());

  for (size_t i = 0; i < choices.size(); ++i) {
    StreamedChoice expected = WholeChoice(choices[i].get_object());
    StreamedChoice got = streamed.at(static_cast<int64_t>(i));
    // They are in the first event, or in the first choice.
    expected.fields.erase("prompt_token_ids");
    got.fields.erase("prompt_token_ids");
    ExpectSame(got, expected);
  }
  if (call.include_usage) {
    RC_ASSERT(events[events.size() - 2].at("usage") == whole.at("usage"));
  }
}

TEST(ChunkWriterTest, SamplesAreInterleaved) {
  const Call call = CallOf(Api::kCompletions, R"("n": 2)");
  const PromptParts prompt = PromptOf(call);
  ChunkWriter writer(call, kSampleHead, {prompt}, &EnFrTokenizer());
  EXPECT_EQ(writer.Begin(), "");
  EXPECT_EQ(writer.Add(0, SampleEvent{1, EnFrTokens("le"), "le"}),
            R"(data: {"id":"cmpl-7","object":"text_completion",)"
            R"("created":1700000000,"model":"en-fr","choices":[{"index":1,)"
            R"("text":"le","logprobs":null,"finish_reason":null}]})"
            "\n\n");
  EXPECT_THAT(writer.Add(0, SampleEvent{0, EnFrTokens("la"), "la"}),
              HasSubstr(R"([{"index":0,"text":"la")"));
  EXPECT_EQ(writer.Add(0, SampleEvent{1, {2}, "", FinishReason::kEos}), "")
      << "no empty deltas";
}

TEST(ChunkWriterTest, ChatsBeginWithTheRole) {
  const Call call = CallOf(Api::kChat, R"("n": 2, "foo": 1)");
  ChunkWriter writer(call, kSampleHead, {PromptOf(call)}, &EnFrTokenizer());
  const auto events = EventsOf(writer.Begin());
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(WriteJson(events[1].at("choices")),
            R"([{"index": 1, "delta": {"role": "assistant", "content": ""}, )"
            R"("logprobs": null, "finish_reason": null}])");
  EXPECT_EQ(events[0].at("object"), "chat.completion.chunk");
  EXPECT_EQ(WriteJson(events[0].at("warnings")),
            R"(["unknown field \"foo\""])");
  EXPECT_FALSE(events[1].get_object().contains("warnings"));
  EXPECT_THAT(writer.Add(0, SampleEvent{0, EnFrTokens("la"), "la"}),
              HasSubstr(R"("choices":[{"index":0,"delta":{"content":"la"},)"));
}

TEST(ChunkWriterTest, BeamsThatLiveComeIfAskedFor) {
  BeamsEvent event = {.num_steps = 4};
  event.beams.push_back({EnFrTokens("le chat"), -0.5f, -1.0f});
  event.beams.push_back({EnFrTokens("la"), -0.75f, -0.75f, FinishReason::kEos});
  const Call quiet = CallOf(Api::kCompletions, R"("num_beams": 2)");
  EXPECT_EQ(ChunkWriter(quiet, kSampleHead, {PromptOf(quiet)}, &EnFrTokenizer())
                .Add(0, event),
            "");
  const Call call =
      CallOf(Api::kCompletions,
             R"("stream": true, "num_beams": 2, "stream_beams": true)");
  ChunkWriter writer(call, kSampleHead, {PromptOf(call)}, &EnFrTokenizer());
  const auto events = EventsOf(writer.Add(0, event));
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].at("choices").get_array().size(), 0);
  EXPECT_EQ(WriteJson(events[0].at("espalier")),
            Concat(R"({"prompt": 0, "step": 4, "beams": [{"text": "le chat", )",
                   R"("tokens": [)", EnFrTokens("le chat")[0], ", ",
                   EnFrTokens("le chat")[1],
                   R"(], "score": -0.5, "cum_log_prob": -1.0, )",
                   R"("finish_reason": null}, {"text": "la", "tokens": [)",
                   EnFrTokens("la")[0],
                   R"(], "score": -0.75, "cum_log_prob": -0.75, )",
                   R"("finish_reason": "stop"}]})"));
}

TEST(ChunkWriterTest, BestOfComesInTheEnd) {
  const Call call = CallOf(Api::kCompletions, R"("best_of": 2)");
  const PromptParts prompt = PromptOf(call);
  ChunkWriter writer(call, kSampleHead, {prompt}, &EnFrTokenizer());
  EXPECT_EQ(writer.Add(0, SampleEvent{1, EnFrTokens("le"), "le"}), "");
  const auto events = EventsOf(writer.Finish(
      0, MakeAnswer(prompt,
                    {MakeHypothesis(EnFrTokens("le"), FinishReason::kLength,
                                    call.params, EnFrTokenizer())})));
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].at("choices").at(0).at("text"), "le");
  EXPECT_EQ(events[0].at("espalier").at("steps"), 1);
}

TEST(ChunkWriterTest, ErrorsEndAStream) {
  const Call call = CallOf(Api::kCompletions, "");
  ChunkWriter writer(call, kSampleHead, {PromptOf(call)}, &EnFrTokenizer());
  EXPECT_EQ(writer.Fail(MakeHttpError(503, "the server ends")),
            "data: {\"error\": {\"message\": \"the server ends\", \"type\": "
            "\"server_error\", \"param\": null, \"code\": "
            "\"service_unavailable\"}}\n\ndata: [DONE]\n\n");
}

TEST(ChunkWriterTest, TheUsageComesAfterAnErrorToo) {
  const Call call =
      CallOf(Api::kCompletions,
             R"("stream": true, "stream_options": {"include_usage": true})");
  ChunkWriter writer(call, kSampleHead, {PromptOf(call)}, &EnFrTokenizer());
  const std::string events = writer.Fail(MakeHttpError(503, "it ends"));
  const size_t error = events.find("\"error\"");
  const size_t usage = events.find("\"usage\":{");
  ASSERT_NE(error, events.npos);
  ASSERT_NE(usage, events.npos);
  EXPECT_LT(error, usage);
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n"));
}

TEST(ChunkWriterTest, UsageIsNullUntilTheEnd) {
  const Call call =
      CallOf(Api::kCompletions,
             R"("stream": true, "stream_options": {"include_usage": true})");
  ChunkWriter writer(call, kSampleHead, {PromptOf(call)}, &EnFrTokenizer());
  EXPECT_THAT(writer.Add(0, SampleEvent{0, EnFrTokens("le"), "le"}),
              HasSubstr(R"("usage":null})"));
  EXPECT_EQ(writer.num_generated_tokens(), 1);
  EXPECT_EQ(writer.num_prompt_tokens(), std::ssize(EnFrTokens("Hello")));
}

}  // namespace
}  // namespace espalier::openai
