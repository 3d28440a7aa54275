// Calls whose prompts are split into sentences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "espalier/generator.h"
#include "tests/serve/server_fixture.h"
#include "tests/source_tree.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;

const char* const kSentences[] = {"It rains.", "Where is the station?",
                                  "I am tired."};
constexpr char kText[] = "It rains. Where is the station?\n\nI am tired.";

class SentenceCallsTest : public ServerFixture {
 protected:
  void Serve(ServerOptions options = {}) {
    Listen(std::move(options));
    absl::StatusOr<Generator> generator =
        Generator::Load(SourcePath("models/en-fr"), {.num_threads = 1});
    EXPECT_OK(generator);
    EXPECT_OK(server_->Serve(*std::move(generator), "models/en-fr"));
  }

  json::value Complete(json::object body, const std::string& prompt) {
    body["prompt"] = prompt;
    const RawResponse response = Post("/v1/completions", WriteJson(body));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body).value();
  }

  static std::vector<std::string> TextsOf(const json::value& answer) {
    std::vector<std::string> texts;
    for (const json::value& choice : answer.at("choices").as_array()) {
      texts.emplace_back(choice.at("text").as_string());
    }
    return texts;
  }

  // The texts of the events of a streamed answer, by choice.
  std::vector<std::string> StreamedTexts(json::object body, size_t n) {
    body["prompt"] = kText;
    body["stream"] = true;
    const RawResponse response = Post("/v1/completions", WriteJson(body));
    EXPECT_EQ(response.status, 200) << response.body;
    const Events events = ReadEvents(response.body);
    EXPECT_TRUE(events.is_done) << response.body;
    std::vector<std::string> texts(n);
    for (const json::value& event : events.all) {
      for (const json::value& choice : event.at("choices").as_array()) {
        texts[choice.at("index").as_int64()] += choice.at("text").as_string();
      }
    }
    return texts;
  }

  std::string Refused(const json::object& body,
                      std::string_view param = "split_sentences") {
    const RawResponse response = Post("/v1/completions", WriteJson(body));
    EXPECT_EQ(response.status, 400) << response.body;
    const json::value error = ParseJson(response.body).value().at("error");
    EXPECT_EQ(error.at("param").as_string(), param) << response.body;
    return std::string(error.at("message").as_string());
  }
};

TEST_F(SentenceCallsTest, AnswersAreThoseOfSentencesJoinedStreamedOrNot) {
  Serve();
  const std::vector<json::object> kinds = {
      {{"temperature", 0}},
      {{"num_beams", 4}, {"n", 2}},
      {{"num_beams", 4}, {"n", 2}, {"stream_beams", false}},
      {{"n", 3}, {"seed", 11}},
      {{"n", 1}, {"best_of", 3}, {"seed", 12}}};
  for (json::object body : kinds) {
    SCOPED_TRACE(WriteJson(body));
    body["max_tokens"] = 40;
    std::vector<std::string> expected;
    const char* const kSeparators[] = {"", " ", "\n\n"};
    int64_t num_tokens = 0;
    for (int k = 0; k < 3; ++k) {
      const json::value answer = Complete(body, kSentences[k]);
      num_tokens += answer.at("usage").at("completion_tokens").as_int64();
      const std::vector<std::string> own = TextsOf(answer);
      expected.resize(own.size());
      for (size_t i = 0; i < own.size(); ++i) {
        expected[i] += kSeparators[k] + own[i];
      }
    }
    const json::value whole = Complete(body, kText);
    EXPECT_EQ(TextsOf(whole), expected);
    EXPECT_EQ(whole.at("usage").at("completion_tokens").as_int64(), num_tokens);
    EXPECT_EQ(StreamedTexts(body, expected.size()), expected);
  }
}

TEST_F(SentenceCallsTest, LiveBeamsNameTheirSentence) {
  Serve();
  const json::object body = {{"prompt", kText},
                             {"num_beams", 3},
                             {"stream", true},
                             {"max_tokens", 40},
                             {"stream_beams", true}};
  const RawResponse response = Post("/v1/completions", WriteJson(body));
  EXPECT_THAT(response.body, HasSubstr(R"("prompt":0,"sentence":2,"step":)"));
}

TEST_F(SentenceCallsTest, FalseTakesATextAsOne) {
  Serve();
  constexpr char kLine[] = "It rains. I am tired.";
  json::object body = {{"temperature", 0}, {"max_tokens", 60}};
  const auto tokens_of = [](const json::value& answer) {
    return answer.at("usage").at("prompt_tokens").as_int64();
  };
  const int64_t split = tokens_of(Complete(body, kLine));
  body["split_sentences"] = false;
  EXPECT_EQ(tokens_of(Complete(body, kLine)) + 3, split);
}

TEST_F(SentenceCallsTest, ADefaultOfTheServerHoldsWhereACallDoesNotSay) {
  Serve({.defaults = R"({"split_sentences": false})"});
  json::object body = {{"temperature", 0}, {"max_tokens", 60}};
  const std::string whole = TextsOf(Complete(body, kText))[0];
  body["split_sentences"] = true;
  EXPECT_NE(TextsOf(Complete(body, kText))[0], whole);
}

TEST_F(SentenceCallsTest, WhatIsOfOneOutputIsRefusedByName) {
  Serve();
  EXPECT_THAT(
      Refused({{"prompt", kText}, {"split_sentences", true}, {"logprobs", 1}}),
      HasSubstr("split_sentences must be false with logprobs, got"));
  EXPECT_THAT(Refused({{"prompt", {1, 4, 5}}, {"split_sentences", true}}),
              HasSubstr("split_sentences needs a prompt that is a text"));
}

TEST_F(SentenceCallsTest, ATextThatAFieldKeepsWholeHasAWarning) {
  Serve();
  const auto warnings = [&](json::object body) -> std::string {
    const json::value answer = Complete(body, kText);
    const json::value* found = answer.as_object().if_contains("warnings");
    return found == nullptr ? "" : WriteJson(*found);
  };
  EXPECT_THAT(warnings({{"temperature", 0}, {"logprobs", 1}}),
              HasSubstr("translated as one because of logprobs"));
  EXPECT_EQ(warnings({{"temperature", 0}}), "");
  EXPECT_EQ(
      warnings(
          {{"temperature", 0}, {"logprobs", 1}, {"split_sentences", false}}),
      "");
}

TEST_F(SentenceCallsTest, SentencesCountAsPrompts) {
  Serve({.requests = {.max_prompts = 8, .max_choices = 12}});
  std::string text;
  while (text.size() < (1 << 19)) text += "Ab. ";
  EXPECT_EQ(Refused({{"prompt", text}}, "prompt"),
            "prompt must have at most 8 sentences, each a request "
            "(--max-prompts), got more; send the text in parts");
  EXPECT_EQ(Refused({{"prompt", kText}, {"n", 5}}, "prompt"),
            "prompt must make at most 12 sequences of all sentences "
            "(--max-choices), got 15 of 3; send the text in parts");
}

}  // namespace
}  // namespace espalier::serve
