// Texts, conversations and tokens of clients as prompts, and as text again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PromptTokensTest : public ServerFixture {};

TEST_F(PromptTokensTest, AnUnknownTemplateIsABadField) {
  Start();
  const RawResponse response =
      Post("/v1/completions", R"({"prompt": "a", "template": "none"})");
  EXPECT_EQ(response.status, 400) << response.body;
  EXPECT_THAT(response.body, HasSubstr(R"("param": "template")"));
}

TEST_F(PromptTokensTest, APromptIsCutToWhatTheContextTakes) {
  Start();
  std::string ids = "4";
  for (int i = 0; i < 400; ++i) ids += ", 5";
  const auto used = [&](const std::string& more) {
    const RawResponse response =
        Post("/v1/completions",
             Concat(R"({"max_tokens": 6, "prompt": [)", ids, "]", more, "}"));
    if (response.status != 200) return -int64_t{response.status};
    return ParseJson(response.body)->at("usage").at("prompt_tokens").as_int64();
  };
  EXPECT_EQ(used(""), -400);
  EXPECT_EQ(used(R"(, "truncate_prompt_tokens": -1)"), 250);
  EXPECT_EQ(used(R"(, "truncate_prompt_tokens": 10)"), 10);
}

TEST_F(PromptTokensTest, ATextLongerThanTheContextIsCut) {
  Start();
  const std::string text(1000, 'a');
  const auto answer = [&](const std::string& more) {
    return Post("/v1/completions", Concat(R"({"max_tokens": 6, "prompt": ")",
                                          text, "\"", more, "}"));
  };
  const RawResponse whole = answer("");
  EXPECT_EQ(whole.status, 400);
  EXPECT_THAT(whole.body, HasSubstr("context_length_exceeded"));
  for (const auto& [most, left] : {std::pair(-1, 250), std::pair(10, 10)}) {
    const RawResponse cut =
        answer(Concat(R"(, "truncate_prompt_tokens": )", most));
    ASSERT_EQ(cut.status, 200) << cut.body;
    EXPECT_EQ(ParseJson(cut.body)->at("usage").at("prompt_tokens"), left);
  }
}

TEST_F(PromptTokensTest, TokenizeAnswersWhatACompletionReads) {
  Start();
  for (const char* const fields :
       {R"("prompt": "It rains.")",
        R"("prompt": "It rains.", "add_special_tokens": false)",
        R"("prompt": "It rains.", "truncate_prompt_tokens": 2)",
        R"("prompt": "It rains.", "truncate_prompt_tokens": 2,
           "truncation_side": "right")"}) {
    const RawResponse tokenized = Post("/tokenize", Concat("{", fields, "}"));
    const RawResponse completed = Post(
        "/v1/completions",
        Concat("{", fields, R"(, "max_tokens": 1, "return_token_ids": true})"));
    ASSERT_EQ(tokenized.status, 200) << tokenized.body;
    ASSERT_EQ(completed.status, 200) << completed.body;
    EXPECT_EQ(
        ParseJson(tokenized.body)->at("tokens"),
        ParseJson(completed.body)->at("choices").at(0).at("prompt_token_ids"));
  }
  // It has no longest prompt.
  const RawResponse longer = Post(
      "/tokenize", Concat(R"({"prompt": ")", std::string(1000, 'a'), "\"}"));
  EXPECT_EQ(longer.status, 200) << longer.body;
  EXPECT_EQ(Post("/tokenize", R"({"prompt": " "})").status, 400);
}

// For a body that generates, the response includes the fed tokens and the room
// that they leave.
TEST_F(PromptTokensTest, TokenizeTakesTheBodyOfACompletion) {
  Start();
  const std::string body =
      Concat(R"({"strict": true, "max_tokens": 6, "num_beams": 2, "n": 2, )",
             R"("truncate_prompt_tokens": -1, "forced_bos_token_id": 7, )",
             R"("return_token_ids": true, "prompt": ")", std::string(1000, 'a'),
             "\"}");
  const RawResponse tokenized = Post("/tokenize", body);
  const RawResponse completed = Post("/v1/completions", body);
  ASSERT_EQ(tokenized.status, 200) << tokenized.body;
  ASSERT_EQ(completed.status, 200) << completed.body;
  EXPECT_EQ(
      ParseJson(tokenized.body)->at("tokens"),
      ParseJson(completed.body)->at("choices").at(0).at("prompt_token_ids"));
}

// A chat of a model without a template has a way out.
TEST_F(PromptTokensTest, AChatThatCannotBeSaysWhatCan) {
  Start();
  for (const char* const path : {"/v1/chat/completions", "/tokenize"}) {
    const RawResponse response =
        Post(path, R"({"messages": [{"role": "user", "content": "a"}]})");
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_THAT(response.body,
                HasSubstr("; /v1/completions takes a prompt without one"));
    EXPECT_THAT(response.body, HasSubstr(R"("param": "messages")"));
  }
  const RawResponse response = Post("/v1/responses", R"({"input": "a"})");
  EXPECT_EQ(response.status, 400) << response.body;
  EXPECT_THAT(response.body, HasSubstr(R"("param": "input")"));
}

TEST_F(PromptTokensTest, TokenizeRefusesWhatACompletionRefuses) {
  Start();
  for (const char* const fields :
       {R"("prompt": "a", "template": "none")",
        R"("prompt": "a", "template": "")",
        // Without an encoder it is generated, and of no prompt.
        R"("prompt": "a", "forced_bos_token_id": 1000000)",
        R"("prompt": "a", "decoder_prompt": " ")",
        R"("prompt": "a", "decoder_input_ids": [1000000])"}) {
    const RawResponse tokenized = Post("/tokenize", Concat("{", fields, "}"));
    const RawResponse completed =
        Post("/v1/completions", Concat("{", fields, "}"));
    EXPECT_EQ(tokenized.status, 400) << tokenized.body;
    EXPECT_EQ(tokenized.body, completed.body);
  }
}

// BOS stays, whichever side is cut.
TEST_F(PromptTokensTest, WhatStandsAroundATextIsKept) {
  Start();
  const auto tokens = [&](const std::string& more) {
    const RawResponse response =
        Post("/tokenize", Concat(R"({"prompt": "It rains a lot.")", more, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)->at("tokens").as_array();
  };
  const json::array all = tokens("");
  ASSERT_GE(all.size(), 5);
  const auto cut = [&](const char* side) {
    return tokens(Concat(R"(, "truncate_prompt_tokens": 3, )",
                         R"("truncation_side": ")", side, "\""));
  };
  EXPECT_EQ(cut("right"), json::array({all[0], all[1], all[2]}));
  EXPECT_EQ(cut("left"),
            json::array({all[0], all[all.size() - 2], all.back()}));
  const RawResponse nothing =
      Post("/tokenize", R"({"prompt": "It", "truncate_prompt_tokens": 1})");
  EXPECT_EQ(nothing.status, 400);
  EXPECT_THAT(nothing.body,
              HasSubstr("truncate_prompt_tokens must be at least 2"));
}

TEST_F(PromptTokensTest, NamesOfSpecialTokensAreThemIfTheCallSaysSo) {
  Start();
  const auto tokenized = [&](const std::string& more) {
    const RawResponse response =
        Post("/tokenize", Concat(R"({"prompt": "<s>oui</s>")", more, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)->as_object();
  };
  const json::object plain = tokenized("");
  EXPECT_EQ(plain.at("warnings").as_array().size(), 1);
  EXPECT_THAT(std::string(plain.at("warnings").as_array()[0].as_string()),
              HasSubstr("parse_special"));
  const json::object parsed = tokenized(R"(, "parse_special": true)");
  EXPECT_FALSE(parsed.contains("warnings"));
  const json::array& tokens = parsed.at("tokens").as_array();
  EXPECT_EQ(tokens.front(), 1) << "one BOS";
  EXPECT_NE(tokens[1], 1);
  EXPECT_EQ(tokens.back(), 2);
}

TEST_F(PromptTokensTest, ADecoderPromptEndsThePrompt) {
  Start();
  const auto tokens = [&](const char* fields) {
    return ParseJson(Post("/tokenize", fields).body)->at("tokens").as_array();
  };
  const json::array prompt = tokens(R"({"prompt": "Il pleut"})");
  EXPECT_EQ(tokens(R"({"prompt": "Il", "decoder_prompt": "pleut"})"), prompt);
}

TEST_F(PromptTokensTest, ALongBodyIsNotMadeTokensOfToBeCut) {
  ServerOptions options;
  options.requests.max_list_elements = 1000;
  Start(options);
  const auto answer = [&](const std::string& more) {
    return Post("/v1/completions",
                Concat(R"({"max_tokens": 1, "prompt": ")",
                       std::string(990, 'a'), "\"", more, "}"));
  };
  EXPECT_EQ(answer("").status, 400);
  const RawResponse cut = answer(R"(, "truncate_prompt_tokens": 5)");
  EXPECT_EQ(cut.status, 400);
  EXPECT_THAT(cut.body, HasSubstr(R"("param": "truncate_prompt_tokens")"));
}

// More prompt tokens than may ever wait together.
TEST_F(PromptTokensTest, WhatMayNeverWaitIsRefusedForGood) {
  Start({}, {.num_threads = 1, .max_waiting_tokens = 20});
  const auto status = [&](const char* prompts) {
    return Post("/v1/completions",
                Concat(R"({"max_tokens": 1, "prompt": )", prompts, "}"))
        .status;
  };
  EXPECT_EQ(status("[[4, 5, 6], [4, 5, 6]]"), 200);
  EXPECT_EQ(status("[[1,2,3,4,5,6,7,8,9,10,11], [1,2,3,4,5,6,7,8,9,10,11]]"),
            400);
  EXPECT_EQ(status("[1,2,3,4,5,6,7,8,9,10,11,1,2,3,4,5,6,7,8,9,10,11]"), 400);
}

TEST_F(PromptTokensTest, WhatIsEchoedOfACutPromptIsWhatTheEngineGot) {
  Start();
  const auto text = [&](const std::string& more) {
    const RawResponse response =
        Post("/v1/completions",
             Concat(R"({"max_tokens": 1, "temperature": 0, "echo": true)", more,
                    "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    const json::value body = *ParseJson(response.body);
    return std::string(body.at("choices").at(0).at("text").as_string());
  };
  for (const char* const prompt : {R"([66, 67, 68, 69])", R"("abcdefgh")"}) {
    const std::string whole = Concat(R"(, "prompt": )", prompt);
    const std::string cut =
        text(Concat(whole, R"(, "truncate_prompt_tokens": 2)"));
    const std::string echoed = text(whole);
    EXPECT_FALSE(cut.starts_with(echoed.substr(0, 4)))
        << prompt << cut << echoed;
  }
}

TEST_F(PromptTokensTest, TokensThatAreNotInTheVocabularyAreNoText) {
  Start();
  const RawResponse response =
      Post("/detokenize", R"({"tokens": [70, 1000000]})");
  EXPECT_EQ(response.status, 400) << response.body;
  EXPECT_THAT(response.body, HasSubstr("tokens[1] must be in [0, "));
  EXPECT_THAT(response.body, HasSubstr("got 1000000"));
}

}  // namespace
}  // namespace espalier::serve
