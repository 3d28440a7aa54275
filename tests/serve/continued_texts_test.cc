// The law of completions, for random prompts, stops and ways to decode: the
// joined texts of prompt and output are the text of all tokens; a stream adds
// up to the whole response, and a prompt's choices are the same alone and
// beside others.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/few_cases.h"
#include "tests/serve/server_fixture.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::EnFrTokenizer;

std::string TextOf(const json::value& value) {
  return std::string(value.as_string());
}

class ContinuedTextsTest : public ServerFixture {
 protected:
  int Below(int end) { return static_cast<int>(random_() % end); }

  // Words, bytes that seldom make characters, and special tokens.
  json::array RandomPrompt() {
    json::array prompt;
    for (int i = 1 + Below(8); i > 0; --i) {
      const int way = Below(4);
      prompt.push_back(way == 0 ? Below(6) : Below(way == 1 ? 262 : 6000));
    }
    return prompt;
  }

  json::object RandomFields() {
    json::object fields = {{"max_tokens", 1 + Below(8)}, {"seed", Below(100)}};
    fields["return_token_ids"] = true;
    const int way = Below(3);
    if (way == 0) fields["temperature"] = 0;
    if (way == 1) fields["n"] = 3;
    if (way == 2) fields["num_beams"] = 3;
    if (way == 2 && Below(2) == 0) fields["n"] = 2;
    if (Below(3) == 0) fields["skip_special_tokens"] = false;
    if (Below(2) == 0) fields["min_tokens"] = Below(4);
    if (Below(2) == 0) fields["logit_bias"] = json::object{{"2", 5}, {"1", 5}};
    return fields;
  }

  json::array Choices(const json::object& body) {
    const RawResponse response = Post("/v1/completions", WriteJson(body));
    EXPECT_EQ(response.status, 200) << response.body << WriteJson(body);
    return ParseJson(response.body)->at("choices").as_array();
  }

  // By their index.
  std::map<int64_t, std::string> StreamedTexts(json::object body) {
    body["stream"] = true;
    const RawResponse response = Post("/v1/completions", WriteJson(body));
    EXPECT_EQ(response.status, 200) << response.body;
    std::map<int64_t, std::string> texts;
    for (const json::value& event : ReadEvents(response.body).all) {
      for (const json::value& choice : event.at("choices").as_array()) {
        texts[choice.at("index").as_int64()] += TextOf(choice.at("text"));
      }
    }
    return texts;
  }

  void ExpectStreamed(const json::object& body, const json::array& choices) {
    const std::map<int64_t, std::string> streamed = StreamedTexts(body);
    ASSERT_EQ(streamed.size(), choices.size());
    for (const json::value& choice : choices) {
      EXPECT_EQ(streamed.at(choice.at("index").as_int64()),
                TextOf(choice.at("text")))
          << WriteJson(body);
    }
  }

  std::mt19937 random_{7};
};

TEST_F(ContinuedTextsTest, PromptAndTextAreTheTextOfAllTokens) {
  Start();
  for (int i = Cases(60, 6); i > 0; --i) {
    json::object body = RandomFields();
    body["prompt"] = RandomPrompt();
    body["echo"] = true;
    const json::array choices = Choices(body);
    const bool shows_special = body.contains("skip_special_tokens");
    for (const json::value& choice : choices) {
      std::vector<TokenId> tokens;
      for (const json::value* const list :
           {std::as_const(body).if_contains("prompt"),
            &choice.at("token_ids")}) {
        for (const json::value& token : list->as_array()) {
          tokens.push_back(static_cast<TokenId>(token.as_int64()));
        }
      }
      EXPECT_EQ(TextOf(choice.at("text")),
                EnFrTokenizer()
                    .Decode(tokens, {.show_special = shows_special})
                    .value())
          << WriteJson(body);
    }
    ExpectStreamed(body, choices);
  }
}

// Parts of texts that come without stops, and names of special tokens.
TEST_F(ContinuedTextsTest, StopsEndStreamedTextsAsWholeOnes) {
  Start();
  int num_stopped = 0;
  const int num_cases = Cases(60, 6);
  for (int i = 0; i < num_cases; ++i) {
    json::object body = RandomFields();
    body["prompt"] = RandomPrompt();
    const json::array before = Choices(body);
    const std::string text = TextOf(before[0].at("text"));
    json::array stops = {"</s>", "e<s>"};
    if (text.size() > 1 && IsUtf8(text.substr(0, text.size() / 2))) {
      stops.push_back(json::value(text.substr(0, text.size() / 2)));
    }
    body["stop"] = stops;
    if (Below(2) == 0) body["include_stop"] = true;
    const json::array choices = Choices(body);
    for (const json::value& choice : choices) {
      const json::value& stop = choice.at("stop_reason");
      num_stopped += stop.is_string();
      if (!stop.is_string() || !body.contains("include_stop")) continue;
      EXPECT_TRUE(TextOf(choice.at("text")).ends_with(TextOf(stop)))
          << WriteJson(choice);
    }
    ExpectStreamed(body, choices);
  }
  EXPECT_GT(num_stopped, num_cases / 4);
}

TEST_F(ContinuedTextsTest, PromptsOfOneBodyAreAsAlone) {
  Start();
  for (int i = Cases(20, 3); i > 0; --i) {
    json::object body = RandomFields();
    const json::array prompts = {RandomPrompt(), RandomPrompt()};
    body["prompt"] = prompts;
    const json::array together = Choices(body);
    json::array alone;
    for (const json::value& prompt : prompts) {
      body["prompt"] = prompt;
      for (const json::value& choice : Choices(body)) alone.push_back(choice);
    }
    ASSERT_EQ(together.size(), alone.size());
    for (size_t j = 0; j < alone.size(); ++j) {
      EXPECT_EQ(together[j].at("index").as_int64(), j);
      EXPECT_EQ(together[j].at("text"), alone[j].at("text"));
      EXPECT_EQ(together[j].at("token_ids"), alone[j].at("token_ids"));
    }
  }
}

// A sample is of its number and the seed, streamed or not.
TEST_F(ContinuedTextsTest, SamplesStandInTheirOrder) {
  Start();
  json::object body = {{"prompt", "Il"}, {"max_tokens", 4}, {"seed", 3}};
  body["n"] = 6;
  const json::array six = Choices(body);
  body["n"] = 2;
  const json::array two = Choices(body);
  ASSERT_EQ(two.size(), 2);
  for (size_t i = 0; i < two.size(); ++i) {
    EXPECT_EQ(two[i].at("text"), six[i].at("text"));
  }
  body["n"] = 6;
  ExpectStreamed(body, six);
  body["n"] = 2;
  body["best_of"] = 6;
  const json::array best = Choices(body);
  EXPECT_GE(best[0].at("score").as_double(), best[1].at("score").as_double());
}

}  // namespace
}  // namespace espalier::serve
