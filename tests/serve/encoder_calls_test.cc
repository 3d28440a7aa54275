// Calls to an encoder-decoder translator: errors for prompts that its encoder
// cannot read, and for unsupported fields, name the call's fields.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/json.h"
#include "espalier/generator.h"
#include "tests/serve/server_fixture.h"
#include "tests/source_tree.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::serve {
namespace {

class EncoderCallsTest : public ServerFixture {
 protected:
  EncoderCallsTest() { Serve({}); }

  void Serve(ServerOptions options,
             const std::string& model = "models/en-fr-marian") {
    Listen(std::move(options));
    absl::StatusOr<Generator> generator =
        Generator::Load(SourcePath(model), {.num_threads = 1});
    EXPECT_OK(generator);
    EXPECT_OK(server_->Serve(*std::move(generator), model));
  }

  // The error of a call that is refused.
  json::object Refused(std::string_view path, const std::string& body) {
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return ParseJson(response.body)->at("error").as_object();
  }

  // Returns the text of a completion of one sentence, with these fields.
  std::string TextOf(const std::string& fields) {
    json::object body = ParseJson(fields)->as_object();
    body["prompt"] = "I am here.";
    const RawResponse response = Post("/v1/completions", WriteJson(body));
    EXPECT_EQ(response.status, 200) << response.body;
    const json::value answer = ParseJson(response.body).value();
    return std::string(
        answer.at("choices").at(0).at("text").as_string().c_str());
  }
};

TEST_F(EncoderCallsTest, ASourceThatIsTooLongExceedsTheContextLength) {
  std::string ids = "5999";
  for (int i = 0; i < 512; ++i) ids += ", 264";
  json::object error =
      Refused("/v1/completions", Concat(R"({"prompt": [)", ids, "]}"));
  EXPECT_EQ(error.at("message"),
            "the prompt has 513 tokens, and the model's encoder reads at most "
            "512");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "prompt");
  error = Refused("/inference/v1/generate",
                  Concat(R"({"token_ids": [)", ids, "]}"));
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "token_ids");
  error = Refused("/v1/completions",
                  Concat(R"({"prompt": ")", std::string(60'000, 'a'), "\"}"));
  EXPECT_THAT(std::string(error.at("message").as_string()),
              ::testing::StartsWith("prompt is too long: the model's encoder "
                                    "reads at most 512 tokens: "));
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("param"), "prompt");
}

TEST_F(EncoderCallsTest, WhatItsDecoderHasRoomForIsTold) {
  const json::object error =
      Refused("/v1/completions", R"({"prompt": "No.", "max_tokens": 512})");
  EXPECT_EQ(error.at("message"),
            "max_tokens must be at most 511 (the decoder's context of 512 less "
            "1 token that it begins with), got 512");
  EXPECT_EQ(error.at("param"), "max_tokens");
}

TEST_F(EncoderCallsTest, ADecoderPromptThatIsTooLongIsNamed) {
  std::string ids = "7";
  for (int i = 1; i < 511; ++i) ids += ", 7";
  const json::object error = Refused(
      "/v1/completions",
      Concat(R"({"prompt": "No.", "decoder_prompt_tokens": [)", ids, "]}"));
  EXPECT_EQ(error.at("message"),
            "decoder_prompt_tokens must have at most 510 tokens (the decoder's "
            "context of 512 less 1 token that it begins with and one to "
            "generate), got 511");
  EXPECT_EQ(error.at("param"), "decoder_prompt_tokens");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
}

// By the field that the call has.
TEST_F(EncoderCallsTest, ADecoderPromptAsTextThatIsTooLongIsNamed) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "Il pleut. ";
  for (const char* const path : {"/v1/completions", "/tokenize"}) {
    const json::object error = Refused(
        path, Concat(R"({"prompt": "No.", "decoder_prompt": ")", text, "\"}"));
    EXPECT_THAT(std::string(error.at("message").as_string()),
                ::testing::StartsWith(
                    "decoder_prompt must have at most 510 tokens (the "
                    "decoder's context of 512 less 1 token that it begins "
                    "with and one to generate), got "));
    EXPECT_EQ(error.at("param"), "decoder_prompt");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
  }
  const json::object blank =
      Refused("/v1/completions", R"({"prompt": "No.", "decoder_prompt": " "})");
  EXPECT_EQ(blank.at("message"),
            "decoder_prompt must not be blank, got \" \"; leave it out where "
            "nothing is to begin the output");
  EXPECT_EQ(blank.at("param"), "decoder_prompt");
}

// Its tokens are made before the text is split.
TEST_F(EncoderCallsTest, ADecoderPromptAsTextThatKeepsATextWholeIsNamed) {
  const json::object error =
      Refused("/v1/completions", R"({"prompt": "It rains. No.",
              "decoder_prompt": "Il", "split_sentences": true})");
  EXPECT_EQ(error.at("message"),
            "split_sentences must be false with decoder_prompt, got true");
  const RawResponse whole = Post(
      "/v1/completions",
      R"({"prompt": "It rains. No.", "decoder_prompt": "Il", "max_tokens": 1})");
  EXPECT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(ParseJson(whole.body)->at("warnings").at(0),
            "a text of several sentences is translated as one because of "
            "decoder_prompt, and may lose some; split it, or leave out "
            "decoder_prompt");
}

// By the names that the call has for them.
TEST_F(EncoderCallsTest, TwoDecoderPromptsAreOneTooMany) {
  for (const char* const path : {"/v1/completions", "/tokenize"}) {
    const json::object error = Refused(
        path,
        R"({"prompt": "No.", "decoder_prompt": "a", "decoder_input_ids": [5]})");
    EXPECT_EQ(error.at("message"),
              "decoder_prompt and decoder_input_ids both say how the output "
              "begins: give one of the two, got \"a\" and 1 token");
    EXPECT_EQ(error.at("param"), "decoder_prompt");
  }
}

TEST_F(EncoderCallsTest, TokenizeTakesATemplate) {
  const auto answer = [&](std::string_view path,
                          std::string_view prompt_template,
                          std::string_view more) {
    const RawResponse response =
        Post(path, Concat(R"({"prompt": "No.", "template": ")", prompt_template,
                          "\"", more, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body).value();
  };
  const auto tokens = [&](std::string_view prompt_template) {
    return answer("/tokenize", prompt_template, "").at("tokens");
  };
  EXPECT_NE(tokens("en-fr"), tokens("fr-en"));
  EXPECT_EQ(tokens("fr-en"),
            answer("/v1/completions", "fr-en",
                   R"(, "max_tokens": 1, "return_token_ids": true)")
                .at("choices")
                .at(0)
                .at("prompt_token_ids"));
}

// A template's name is two languages, by codes or names: the first stands in
// the source, and the second is the forced first token.
TEST_F(EncoderCallsTest, ATranslatorTakesLanguagesAsItsTemplate) {
  Serve({}, "tests/data/text_models/nllb");
  const auto tokenizer =
      Tokenizer::LoadDirectory(SourcePath("tests/data/text_models/nllb"))
          .value();
  const auto choice = [&](const std::string& fields) {
    const RawResponse response = Post(
        "/v1/completions", Concat(R"({"prompt": "Tom is here.", "max_tokens": 4,
                        "temperature": 0,
                        "split_sentences": false,
                        "return_token_ids": true, )",
                                  fields, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)->at("choices").at(0);
  };
  const json::value given = choice(R"("template": "fra_Latn-zho_Hant")");
  EXPECT_EQ(given.at("prompt_token_ids").at(0),
            *tokenizer->PieceToId("fra_Latn"));
  EXPECT_EQ(given.at("token_ids").at(0), *tokenizer->PieceToId("zho_Hant"));
  EXPECT_EQ(choice(R"x("template": "French-Chinese (Traditional)")x"), given);
  EXPECT_EQ(choice(R"("template": "fr-eng", "forced_bos_token_id": 9)")
                .at("token_ids")
                .at(0),
            9);
  const json::object error = Refused(
      "/v1/completions", R"({"prompt": "No.", "template": "English-Chinese"})");
  EXPECT_EQ(error.at("param"), "template");
  EXPECT_EQ(error.at("message"),
            "template: the language \"Chinese\" may be zho_Hans (Chinese "
            "(Simplified)) or zho_Hant (Chinese (Traditional))");
  const RawResponse tokenized = Post(
      "/tokenize", R"({"prompt": "Tom is here.", "template": "en-French"})");
  EXPECT_EQ(ParseJson(tokenized.body)->at("tokens").at(0),
            *tokenizer->PieceToId("eng_Latn"));
}

// A MADLAD's template is the target language alone, whose token stands before
// the text.
TEST_F(EncoderCallsTest, ATranslatorWithoutSourcesTakesATargetAsItsTemplate) {
  Serve({}, "tests/data/text_models/madlad");
  const auto choice = [&](const std::string& prompt,
                          const std::string& fields) {
    const RawResponse response =
        Post("/v1/completions", Concat(R"({"max_tokens": 4, "temperature": 0,
             "split_sentences": false, "return_token_ids": true, "prompt": ")",
                                       prompt, "\"", fields, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)->at("choices").at(0);
  };
  const json::value given = choice("<2fr> Tom is here.", "");
  for (const std::string name : {"fr", "French", "fra"}) {
    EXPECT_EQ(choice("Tom is here.", Concat(R"(, "template": ")", name, "\"")),
              given)
        << name;
  }
  for (const std::string path : {"/v1/completions", "/tokenize"}) {
    const json::object error =
        Refused(path, R"({"prompt": "No.", "template": "en-fr"})");
    EXPECT_EQ(error.at("param"), "template");
    EXPECT_EQ(error.at("message"),
              "template: the model takes no source language, got \"en\"; give "
              "the target alone, fr");
  }
}

// The texts of a language begin after the token of the target language.
TEST_F(EncoderCallsTest, ATranslationIntoALanguageMayBeConstrained) {
  Serve({}, "tests/data/text_models/nllb");
  const auto answer = [&](const std::string& fields) {
    const RawResponse response =
        Post("/v1/completions", Concat(R"({"prompt": "Tom is here.",
             "max_tokens": 20, "temperature": 0, "return_token_ids": true,
             "template": "en-fr", )",
                                       fields, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)->at("choices").at(0);
  };
  for (const std::string language :
       {R"("structured_outputs": {"choice": ["Il", "Elle"]})",
        R"("structured_outputs": {"regex": "Il|Elle"})",
        R"("response_format": {"type": "json_schema", "json_schema":
            {"schema": {"type": "boolean"}}})"}) {
    const json::value choice = answer(language);
    EXPECT_THAT(std::string(choice.at("text").as_string()),
                ::testing::ContainsRegex("^(Il|Elle|true|false)$"));
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    // As of a request that says so itself.
    EXPECT_EQ(answer(Concat(language, R"(, "decoder_prompt_tokens": [153])")),
              choice);
  }
}

TEST_F(EncoderCallsTest, ARenderedTranslationIsIntoItsLanguage) {
  Serve({}, "tests/data/text_models/nllb");
  for (const std::string fields :
       {"", R"(, "decoder_prompt": "Il")", R"(, "decoder_prompt_tokens": [2])",
        R"(, "decoder_prompt_tokens": [2, 20])",
        R"(, "forced_bos_token_id": 9)",
        R"(, "structured_outputs": {"choice": ["Il", "Elle"]})"}) {
    const std::string body = Concat(R"({"prompt": "Tom is here.",
        "max_tokens": 9, "temperature": 0, "return_token_ids": true,
        "template": "en-fr")",
                                    fields, "}");
    const RawResponse rendered = Post("/v1/completions/render", body);
    ASSERT_EQ(rendered.status, 200) << rendered.body;
    const RawResponse generated = Post(
        "/inference/v1/generate", WriteJson(ParseJson(rendered.body)->at(0)));
    ASSERT_EQ(generated.status, 200) << generated.body;
    EXPECT_EQ(ParseJson(generated.body)->at("choices").at(0).at("token_ids"),
              ParseJson(Post("/v1/completions", body).body)
                  ->at("choices")
                  .at(0)
                  .at("token_ids"))
        << rendered.body;
  }
}

// Given back as decoder_prompt_tokens it means the same.
TEST_F(EncoderCallsTest, TokenizeShowsWhatTheDecoderBeginsWith) {
  const auto decoder_prompt = [&](const std::string& fields) {
    const RawResponse response =
        Post("/tokenize", Concat(R"({"prompt": "No.")", fields, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return WriteJson(ParseJson(response.body)->at("decoder_prompt_tokens"));
  };
  const std::vector<TokenId> il =
      Tokenizer::LoadDirectory(SourcePath("models/en-fr-marian"))
          .value()
          ->EncodeOutput("Il pleut")
          .value();
  const std::string start = decoder_prompt("");
  EXPECT_EQ(start, "[3]");
  const std::string begun = decoder_prompt(R"(, "decoder_prompt": "Il pleut")");
  EXPECT_EQ(begun, Concat("[3, ", absl::StrJoin(il, ", "), "]"));
  EXPECT_EQ(decoder_prompt(Concat(R"(, "decoder_prompt_tokens": )", begun)),
            begun);
  EXPECT_EQ(decoder_prompt(R"(, "decoder_prompt": "Il pleut",
                              "forced_bos_token_id": 7)"),
            Concat("[3, 7, ", absl::StrJoin(il, ", "), "]"));
}

TEST_F(EncoderCallsTest, TokenizeShowsTheDecoderPromptOfTheServer) {
  Serve({.defaults = R"({"decoder_prompt_tokens": [7]})"});
  const auto decoder_prompt = [&](const char* body) {
    const json::value answer = ParseJson(Post("/tokenize", body).body).value();
    return WriteJson(answer.at("decoder_prompt_tokens"));
  };
  EXPECT_EQ(decoder_prompt(R"({"prompt": "No."})"), "[3, 7]");
  EXPECT_EQ(
      decoder_prompt(R"({"prompt": "No.", "decoder_prompt_tokens": [8]})"),
      "[3, 8]");
}

TEST_F(EncoderCallsTest, AnEchoHasNoLogProbabilities) {
  json::object error = Refused(
      "/v1/completions", R"({"prompt": "No.", "echo": true, "logprobs": 2})");
  EXPECT_EQ(error.at("message"),
            "echo must be false with logprobs for a model with an encoder, "
            "whose prompts have no log-probabilities, got true");
  EXPECT_EQ(error.at("param"), "echo");
  error = Refused("/v1/completions",
                  R"({"prompt": "No.", "echo": true, "prompt_logprobs": 2})");
  EXPECT_EQ(error.at("message"),
            "prompt_logprobs must be unset for a model with an encoder, whose "
            "prompts have no log-probabilities, got 2");
  EXPECT_EQ(Post("/v1/completions",
                 R"({"prompt": "No.", "echo": true, "max_tokens": 2})")
                .status,
            200);
}

TEST_F(EncoderCallsTest, WhatIsByDefaultIsSaidToBe) {
  const json::object error =
      Refused("/v1/completions", R"({"prompt": "No.", "num_beam_groups": 3})");
  EXPECT_EQ(error.at("message"),
            "num_beam_groups must divide num_beams, 4, got 3; num_beams is 4 "
            "by the defaults of the server or its model");
}

TEST_F(EncoderCallsTest, ATranslationThatIsBegunGoesOn) {
  const std::string whole = TextOf("{}");
  const size_t space = whole.find(' ');
  ASSERT_NE(space, whole.npos) << whole;
  EXPECT_EQ(
      TextOf(Concat(R"({"decoder_prompt": ")", whole.substr(0, space), "\"}")),
      whole.substr(space));
}

// The source is no beginning of a translation; the decoder prompt is.
TEST_F(EncoderCallsTest, AnEchoIsOfTheDecoderPrompt) {
  const std::string whole = TextOf("{}");
  EXPECT_EQ(TextOf(R"({"echo": true})"), whole);
  const std::string begun = whole.substr(0, whole.find(' '));
  const std::string prompt = Concat(R"("decoder_prompt": ")", begun, "\"");
  EXPECT_EQ(TextOf(Concat(R"({"echo": true, )", prompt, "}")), whole);
  EXPECT_EQ(TextOf(Concat(R"({"echo": true, "max_tokens": 0, )", prompt, "}")),
            begun);
  const std::vector<TokenId> tokens =
      Tokenizer::LoadDirectory(SourcePath("models/en-fr-marian"))
          .value()
          ->EncodeOutput(begun)
          .value();
  EXPECT_EQ(TextOf(Concat(R"({"echo": true, "decoder_prompt_tokens": [)",
                          absl::StrJoin(tokens, ", "), "]}")),
            whole);
}

}  // namespace
}  // namespace espalier::serve
