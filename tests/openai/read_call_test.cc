// Calls of good bodies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "openai/call.h"
#include "openai/error.h"
#include "openai/resolve_params.h"
#include "openai/tokenize.h"
#include "tests/status_matchers.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A completion of "a" with these fields besides.
absl::StatusOr<Call> Complete(const std::string& fields) {
  return ReadCall(
      Api::kCompletions,
      R"({"prompt": "a")" + (fields.empty() ? "" : ", " + fields) + "}");
}

absl::StatusOr<Call> Chat(const std::string& fields) {
  return ReadCall(Api::kChat,
                  R"({"messages": [{"role": "user", "content": "Hi"}])" +
                      (fields.empty() ? "" : ", " + fields) + "}");
}

absl::StatusOr<Call> Generate(const std::string& sampling) {
  return ReadCall(Api::kTokens, R"({"token_ids": [1, 5], "sampling_params": )" +
                                    sampling + "}");
}

std::vector<std::string> GivenOf(const Call& call) {
  std::vector<std::string> names;
  for (const GivenParam& given : call.given) {
    names.push_back(Concat(given.param, " by ", given.name));
  }
  return names;
}

TEST(ReadCallTest, APromptIsATextOrTokensOrSeveralOfThese) {
  const auto prompts = [](const std::string& json) {
    return ReadCall(Api::kCompletions, R"({"prompt": )" + json + "}")->prompts;
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_THAT(prompts(R"("a b")"), ElementsAre(TextOrTokens("a b")));
  EXPECT_THAT(prompts(R"(["a", "b"])"),
              ElementsAre(TextOrTokens("a"), TextOrTokens("b")));
  EXPECT_THAT(prompts("[7, 8]"), ElementsAre(TextOrTokens(Tokens{7, 8})));
  EXPECT_THAT(prompts("[[7], [8, 9]]"),
              ElementsAre(TextOrTokens(Tokens{7}), TextOrTokens(Tokens{8, 9})));
}

TEST(ReadCallTest, AByteOrderMarkIsPassedOver) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_OK(ReadCall(Api::kCompletions, mark + R"({"prompt": "a"})"));
  EXPECT_OK(ReadTokenizeCall(mark + R"({"prompt": "a"})"));
  EXPECT_OK(ReadDetokenizeCall(mark + R"({"tokens": [1]})"));
  EXPECT_FALSE(ReadCall(Api::kCompletions, mark + mark + "{}").ok());
}

TEST(ReadCallTest, NothingGivenLeavesAllOpen) {
  ASSERT_OK_AND_ASSIGN(const Call call, Complete(""));
  EXPECT_EQ(call.params, GenerationParams());
  EXPECT_THAT(call.given, IsEmpty());
  EXPECT_THAT(call.warnings, IsEmpty());
  EXPECT_FALSE(call.stream);
}

TEST(ReadCallTest, NullIsAsIfTheFieldWereNotThere) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      Complete(R"("n": null, "stop": null, "suffix": null, "stream": null,
                  "stream_options": null, "logprobs": null, "seed": null,
                  "response_format": null, "tools": null)"));
  EXPECT_EQ(call.params, GenerationParams());
  EXPECT_THAT(call.given, IsEmpty());
  EXPECT_THAT(call.warnings, IsEmpty());
}

TEST(ReadCallTest, TakesFieldsByAllTheirNames) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      Complete(R"("max_tokens": 5, "n": 2, "top_k": -1, "min_p": 0.1,
                  "stop": "x", "include_stop_str_in_output": true,
                  "num_beams": 4, "min_tokens": 3, "seed": -2)"));
  EXPECT_EQ(call.params.max_new_tokens, 5);
  EXPECT_EQ(call.params.num_return_sequences, 2);
  EXPECT_EQ(call.params.top_k, 0);
  EXPECT_EQ(call.params.min_new_tokens, 3);
  EXPECT_EQ(call.params.num_beams, 4);
  EXPECT_TRUE(call.params.include_stop);
  EXPECT_EQ(call.params.seed, ~uint64_t{1});
  EXPECT_EQ(call.NameOf("max_new_tokens"), "max_tokens");
  EXPECT_EQ(call.NameOf("num_return_sequences"), "n");
  EXPECT_EQ(call.NameOf("include_stop"), "include_stop_str_in_output");
  EXPECT_TRUE(call.Gives("top_k"));
  EXPECT_FALSE(call.Gives("temperature"));
}

TEST(ReadCallTest, UseBeamSearchTakesItsBeamsFromNOrBestOf) {
  const auto params = [](const std::string& fields) {
    return Complete(R"("use_beam_search": true, )" + fields)->params;
  };
  EXPECT_EQ(params(R"("n": 3)").num_beams, 3);
  EXPECT_EQ(params(R"("n": 3)").num_return_sequences, 3);
  EXPECT_EQ(params(R"("n": 2, "best_of": 5)").num_beams, 5);
  EXPECT_EQ(params(R"("n": 2, "best_of": 5)").best_of, std::nullopt);
  EXPECT_EQ(params(R"("n": 2, "num_beams": 8)").num_beams, 8);
  EXPECT_EQ(params(R"("n": 1)").num_beams, 1);
  ASSERT_OK_AND_ASSIGN(const Call call,
                       Complete(R"("use_beam_search": true, "n": 3)"));
  EXPECT_THAT(GivenOf(call),
              ElementsAre("num_return_sequences by n", "num_beams by n",
                          "do_sample by use_beam_search"));
}

// Clients that send a temperature with everything search all the same, as with
// vLLM.
TEST(ReadCallTest, WhatOnlyDrawsHaveIsIgnoredBesideASearch) {
  const auto warnings = [](const std::string& fields) {
    return Complete(fields)->warnings;
  };
  const std::string rest =
      " is ignored: beams are searched, not drawn; do_sample true draws them";
  for (const char* beams :
       {R"("use_beam_search": true, "n": 3)", R"("use_beam_search": true)",
        R"("num_beams": 4)"}) {
    const std::string fields =
        std::string(beams) + R"(, "temperature": 0.1, "top_k": 5, "min_p": 0.5,
                               "top_p": 0.9)";
    EXPECT_THAT(warnings(fields),
                ElementsAre("temperature 0.1" + rest, "top_k 5" + rest,
                            "top_p 0.9" + rest, "min_p 0.5" + rest))
        << beams;
    const GenerationParams params = Complete(fields)->params;
    EXPECT_EQ(params.temperature, 1);
    EXPECT_EQ(params.top_k, 0);
    EXPECT_EQ(params.top_p, 1);
    EXPECT_EQ(params.min_p, 0);
    const ModelDescription model = {.vocab_size = 100, .max_context = 100};
    GenerationParams resolved =
        ResolveParams(*Complete(fields), {}, {}, model, 1).params;
    EXPECT_OK(ValidateParams(model, 1, &resolved));
    // Kept as given; the engine refuses it.
    EXPECT_EQ(Complete(fields + R"(, "strict": true)")->params.temperature,
              0.1);
  }
  for (const char* fields :
       {R"("use_beam_search": true, "n": 3, "temperature": 0)",
        R"("use_beam_search": true, "n": 3, "temperature": 1, "top_p": 1)",
        R"("num_beams": 4, "do_sample": true, "temperature": 0.1)",
        R"("num_beams": 4, "stochastic": true, "temperature": 0.1)",
        R"("num_beams": 1, "temperature": 0.1)"}) {
    EXPECT_THAT(warnings(fields), IsEmpty()) << fields;
  }
  EXPECT_EQ(Complete(R"("num_beams": 4, "do_sample": true,
                        "temperature": 0.1)")
                ->params.temperature,
            0.1);
}

TEST(ReadCallTest, ChatsHaveTheirOwnLogProbs) {
  EXPECT_EQ(Chat(R"("logprobs": true)")->params.logprobs, 0);
  EXPECT_EQ(Chat(R"("logprobs": true, "top_logprobs": 5)")->params.logprobs, 5);
  EXPECT_EQ(Chat(R"("logprobs": false)")->params.logprobs, std::nullopt);
  EXPECT_EQ(Chat(R"("top_logprobs": 0)")->params.logprobs, std::nullopt);
  EXPECT_THAT(Chat(R"("top_logprobs": 5)"),
              StatusIs(kInvalid, "top_logprobs needs logprobs true, got 5"));
  EXPECT_THAT(Chat(R"("logprobs": 3)"),
              StatusIs(kInvalid, "logprobs must be true or false, got 3"));
  EXPECT_EQ(Complete(R"("logprobs": 3)")->params.logprobs, 3);
}

TEST(ReadCallTest, PartsOfAMessageAreJoined) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       ReadCall(Api::kChat,
                                R"({"messages": [{"role": "user", "content":
                    [{"type": "text", "text": "a"},
                     {"type": "text", "text": "b"}]},
                   {"role": "assistant", "content": null}],
                   "chat_template_kwargs": {"enable_thinking": false},
                   "reasoning_effort": "low"})"));
  EXPECT_EQ(WriteJson(call.chat->messages),
            R"([{"role": "user", "content": "a\nb"}, )"
            R"({"role": "assistant", "content": null}])");
  EXPECT_EQ(WriteJson(call.chat->more),
            R"({"enable_thinking": false, "reasoning_effort": "low"})");
}

TEST(ReadCallTest, TokensHaveParamsInAnObjectOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       ReadCall(Api::kTokens,
                                R"({"sampling_params": {"n": 2, "num_beams": 2,
                                    "detokenize": false, "logprobs": 1},
                                    "token_ids": [3, 4], "priority": 7,
                                    "cache_salt": "s", "request_id": "r"})"));
  EXPECT_THAT(call.prompts,
              ElementsAre(TextOrTokens(std::vector<TokenId>{3, 4})));
  EXPECT_EQ(call.params.num_beams, 2);
  EXPECT_EQ(call.params.priority, 7);
  EXPECT_EQ(call.params.cache_salt, "s");
  EXPECT_EQ(call.request_id, "r");
  EXPECT_FALSE(call.shows_text);
  EXPECT_THAT(call.warnings, IsEmpty());
}

TEST(ReadCallTest, ParamsBesideTheObjectTheyBelongInAreWarnedOf) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      ReadCall(Api::kTokens, R"({"token_ids": [3], "num_beams": 4})"));
  EXPECT_EQ(call.params.num_beams, 1);
  EXPECT_THAT(call.warnings,
              ElementsAre("unknown field \"num_beams\"; it belongs in "
                          "sampling_params"));
  EXPECT_THAT(Generate(R"({"token_ids": [4]})")->warnings,
              ElementsAre("unknown field \"token_ids\" in sampling_params; it "
                          "belongs beside sampling_params"));
}

TEST(ReadCallTest, NamesOfOtherSystemsAreHintedAt) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       Complete(R"("beam_width": 4, "num_beam": 4)"));
  EXPECT_THAT(
      call.warnings,
      ElementsAre("unknown field \"beam_width\"; did you mean num_beams?",
                  "unknown field \"num_beam\"; did you mean num_beams?"));
}

TEST(ReadCallTest, UnknownFieldsAreWarnedOfOrRefused) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       Complete(R"("temprature": 1, "foo": [1, 2])"));
  EXPECT_THAT(call.warnings,
              ElementsAre("unknown field \"temprature\"; did you mean "
                          "temperature?",
                          "unknown field \"foo\""));
  EXPECT_THAT(Complete(R"("foo": 1, "strict": true)"),
              StatusIs(kInvalid, "unknown field \"foo\""));
}

TEST(ReadCallTest, TokenizeTakesTheBodiesOfCalls) {
  const std::string params =
      R"("strict": true, "num_beams": 4, "max_tokens": 7, "stream": true,
         "stop": ["x"], "use_beam_search": true, "logprobs": 1, "user": "u",
         "suffix": ""})";
  ASSERT_OK_AND_ASSIGN(
      TokenizeCall call,
      ReadTokenizeCall(R"({"prompt": "a", "echo": true, )" + params));
  EXPECT_THAT(call.call.warnings, IsEmpty());
  // Truncation to -1 leaves room for them.
  EXPECT_EQ(call.call.params.max_new_tokens, 7);
  ASSERT_OK_AND_ASSIGN(
      call,
      ReadTokenizeCall(R"({"messages": [{"role": "user", "content": "a"}], )"
                       R"("top_logprobs": 2, )" +
                       params));
  EXPECT_THAT(call.call.warnings, IsEmpty());
  EXPECT_THAT(ReadTokenizeCall(R"({"prompt": "a", "num_beam": 4,
                                   "strict": true})"),
              StatusIs(kInvalid,
                       "unknown field \"num_beam\"; did you mean "
                       "num_beams?"));
}

// As a completion does.
TEST(ReadCallTest, TokenizeDropsNoFieldOfMessagesBesideAPrompt) {
  for (const std::string field :
       {R"("documents": [])", R"("reasoning_effort": "low")",
        R"("add_generation_prompt": true)", R"("chat_template_kwargs": {})",
        R"("continue_final_message": true)"}) {
    const std::string name = field.substr(1, field.find(':') - 2);
    ASSERT_OK_AND_ASSIGN(
        const TokenizeCall call,
        ReadTokenizeCall(Concat(R"({"prompt": "a", )", field, "}")));
    const std::string warning =
        Concat("unknown field \"", name, "\" beside prompt; it is of messages");
    EXPECT_THAT(call.call.warnings, ElementsAre(warning));
    const absl::Status refused =
        ReadTokenizeCall(
            Concat(R"({"prompt": "a", "strict": true, )", field, "}"))
            .status();
    EXPECT_THAT(refused, StatusIs(kInvalid, warning));
    EXPECT_EQ(ErrorOf(refused).param, name);
    EXPECT_OK(ReadTokenizeCall(Concat(
        R"({"messages": [{"role": "user", "content": "a"}], "strict": true, )",
        field, "}")));
  }
}

TEST(ReadCallTest, WarnsOfTheFirstOfManyUnknownFields) {
  std::string fields = R"("n": 1)";
  for (int i = 0; i < 100'000; ++i) fields += Concat(R"(, "x)", i, R"(": 0)");
  ASSERT_OK_AND_ASSIGN(const Call call, Complete(fields));
  EXPECT_THAT(call.warnings, SizeIs(17));
  EXPECT_EQ(call.warnings.back(), "and more unknown fields");
}

// Its keys could be chosen to be slow to find.
TEST(ReadCallTest, ObjectsOfCallersHaveAThousandMembersAtMost) {
  const auto object = [](int size) {
    std::string text;
    for (int i = 0; i < size; ++i) {
      text += Concat(i == 0 ? "{" : ", ", '"', i, R"(": 0)");
    }
    return text + "}";
  };
  for (const std::string name : {"documents", "chat_template_kwargs"}) {
    const auto read = [&](int size) {
      const bool is_list = name == "documents";
      return Chat(Concat('"', name, R"(": )", is_list ? "[[" : R"({"a": )",
                         object(size), is_list ? "]]" : "}"))
          .status();
    };
    EXPECT_OK(read(1024));
    const absl::Status status = read(1025);
    EXPECT_THAT(status,
                StatusIs(kInvalid, Concat(name,
                                          " must have no object of more than "
                                          "1024 members, got one of 1025")));
    EXPECT_EQ(ErrorOf(status).param, name);
  }
  EXPECT_THAT(
      ReadCall(Api::kChat, Concat(R"({"messages": [)", object(1025), "]}"))
          .status(),
      StatusIs(kInvalid, HasSubstr("messages must have no object of more")));
  EXPECT_OK(Complete(Concat(R"("logit_bias": )", object(5000))));
}

TEST(ReadCallTest, OfAFieldGivenTwiceTheLastCounts) {
  EXPECT_EQ(Complete(R"("n": 2, "n": 3)")->params.num_return_sequences, 3);
  EXPECT_EQ(Complete(R"("n": 2, "n": null)")->params.num_return_sequences, 1);
  EXPECT_THAT(Complete(R"("n": 2, "num_return_sequences": 3)"),
              StatusIs(kInvalid,
                       "n and num_return_sequences are the same field, got 2 "
                       "and 3"));
  for (const auto& call : {Chat, Complete}) {
    EXPECT_EQ(call(R"("max_tokens": 9, "max_completion_tokens": 9)")
                  ->params.max_new_tokens,
              9);
  }
}

TEST(ReadCallTest, WhatRoutersAddIsTakenQuietly) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      Complete(R"("echo": false, "no_stop_trim": false, "ignore_eos": false,
                  "skip_special_tokens": true, "return_hidden_states": false,
                  "lora_path": null, "session_params": {"id": "a"},
                  "grammar_lazy": false, "grammar_triggers": [],
                  "top_k": -1, "stop_token_ids": null,
                  "include_stop_str_in_output": true, "rid": null,
                  "stream_options": null, "use_beam_search": false)"));
  EXPECT_THAT(call.warnings, IsEmpty());
}

TEST(ReadCallTest, AChatContinuesItsLastMessage) {
  const auto read = [](const std::string& message, const std::string& fields) {
    return ReadCall(Api::kChat,
                    Concat(R"({"messages": [)", message, "]", fields, "}"));
  };
  const std::string message = R"({"role": "assistant", "content": "a"})";
  const std::string prefix =
      R"({"role": "assistant", "content": "a", "prefix": true})";
  const std::string field = R"(, "continue_final_message": true)";
  for (const auto& call :
       {read(message, field), read(prefix, ""),
        read(prefix, R"(, "add_generation_prompt": false, "echo": true)")}) {
    ASSERT_OK(call);
    EXPECT_TRUE(call->chat->continue_final_message);
    EXPECT_FALSE(call->chat->add_generation_prompt);
  }
  EXPECT_FALSE(read(message, "")->chat->continue_final_message);
  EXPECT_THAT(read(message, field + R"(, "add_generation_prompt": true)"),
              StatusIs(kInvalid, HasSubstr("add_generation_prompt must be "
                                           "false")));
  EXPECT_THAT(read(message, R"(, "echo": true)"),
              StatusIs(kInvalid, HasSubstr("echo must be false without "
                                           "continue_final_message")));
  EXPECT_THAT(read(message, field + R"(, "decoder_prompt": "b")"),
              StatusIs(kInvalid, HasSubstr("decoder_prompt must be empty")));
}

TEST(ReadCallTest, EchoReportsThePromptAsTheText) {
  ASSERT_OK_AND_ASSIGN(const Call call,
                       Complete(R"("echo": true, "logprobs": 2)"));
  EXPECT_EQ(call.params.prompt_logprobs, 2);
  EXPECT_FALSE(call.shows_prompt_logprobs);
  EXPECT_TRUE(Complete(R"("prompt_logprobs": 2)")->shows_prompt_logprobs);
}

TEST(ReadCallTest, NoTokensAreForPromptsThatAreEchoed) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      Complete(R"("echo": true, "logprobs": 1, "max_tokens": 0)"));
  EXPECT_TRUE(call.prompt_only);
  EXPECT_EQ(call.params.max_new_tokens, 0);
  EXPECT_EQ(Complete(R"("echo": true, "max_tokens": 0)")->params.max_new_tokens,
            1);
  EXPECT_TRUE(call.Gives("do_sample"));
  EXPECT_TRUE(call.Gives("num_beams"));
  EXPECT_THAT(Complete(R"("max_tokens": 0)"),
              StatusIs(kInvalid, HasSubstr("at least 1 without echo")));
  EXPECT_THAT(
      Complete(R"("max_tokens": 0, "echo": true, "n": 2)"),
      StatusIs(kInvalid, "n must be 1 with echo and max_tokens 0, got 2"));
}

TEST(ReadCallTest, LimitsNameTheirFlags) {
  Limits limits;
  limits.max_prompts = 2;
  limits.max_n = 4;
  limits.max_num_beams = 6;
  limits.max_choices = 7;
  limits.max_tokens = 100;
  limits.max_stop = 1;
  limits.max_list_elements = 5;
  limits.max_name_bytes = 3;
  limits.max_messages = 1;
  const auto error = [&](Api api, const std::string& body) {
    return Message(ReadCall(api, body, limits).status());
  };
  const auto completion = [&](const std::string& fields) {
    return error(Api::kCompletions, R"({"prompt": "a", )" + fields + "}");
  };
  EXPECT_EQ(completion(R"("n": 5)"), "n must be in [1, 4] (--max-n), got 5");
  EXPECT_EQ(completion(R"("n": 0)"), "n must be in [1, 4] (--max-n), got 0");
  EXPECT_EQ(completion(R"("n": 4)"), "");
  EXPECT_EQ(completion(R"("n": 6, "use_beam_search": true)"), "");
  EXPECT_EQ(completion(R"("n": 7, "use_beam_search": true)"),
            "n must be in [1, 6] (--max-num-beams), got 7");
  EXPECT_EQ(completion(R"("num_beams": 7)"),
            "num_beams must be in [1, 6] (--max-num-beams), got 7");
  EXPECT_EQ(completion(R"("best_of": 5)"),
            "best_of must be in [1, 4] (--max-n), got 5");
  EXPECT_EQ(completion(R"("max_tokens": 101)"),
            "max_tokens must be in [1, 100] (--max-tokens-limit), got 101");
  EXPECT_EQ(completion(R"("stop": ["a", "b"])"),
            "stop must have at most 1 strings (--max-stop), got 2");
  EXPECT_EQ(completion(R"("bad_words_ids": [[1, 2, 3, 4, 5]])"),
            "bad_words_ids must have at most 5 elements (--max-list-elements), "
            "got 6");
  EXPECT_EQ(completion(R"("model": "abcd")"),
            "model must have at most 3 bytes, got 4: "
            "\"abcd\"");
  EXPECT_EQ(error(Api::kCompletions, R"({"prompt": ["a", "b", "c"]})"),
            "prompt must have at most 2 prompts (--max-prompts), got 3");
  EXPECT_EQ(error(Api::kCompletions, R"({"prompt": [[1], [], []]})"),
            "prompt must have at most 2 prompts (--max-prompts), got 3");
  // Within the list, a list of tokens is not a prompt.
  EXPECT_EQ(error(Api::kCompletions, R"({"prompt": ["a", [1, 2, 3]]})"),
            "prompt[1] must be a string, got [1, 2, 3]");
  EXPECT_EQ(error(Api::kCompletions, R"({"prompt": ["a", [1, 2], {"b": 3}]})"),
            "prompt must have at most 2 prompts (--max-prompts), got 3");
  EXPECT_EQ(error(Api::kCompletions, R"({"prompt": ["a", "b"], "n": 4})"),
            "prompt must make at most 7 sequences of all prompts "
            "(--max-choices), got 2 times 4");
  EXPECT_EQ(
      error(Api::kChat, R"({"messages": [{"role": "a"}, {"role": "b"}]})"),
      "messages must have at most 1 messages (--max-messages), got 2");
}

TEST(ReadCallTest, TooManyChoicesAreOfTheFieldThatMakesThem) {
  Limits limits;
  limits.max_choices = 2;
  const auto error = [&](const std::string& fields, const char* prompt) {
    return Message(ReadCall(Api::kCompletions,
                            Concat(R"({"prompt": )", prompt, ", ", fields, "}"),
                            limits)
                       .status());
  };
  for (const char* const prompt : {R"("a")", R"(["a", "b", "c"])"}) {
    for (const char* const name :
         {"n", "num_return_sequences", "best_of", "num_beams"}) {
      EXPECT_EQ(error(Concat('"', name, R"(": 3)"), prompt),
                Concat(name, " must be in [1, 2] (--max-choices), got 3"));
    }
    EXPECT_EQ(error(R"("num_beams": 4, "n": 2)", prompt),
              "num_beams must be in [1, 2] (--max-choices), got 4");
    EXPECT_EQ(error(R"("best_of": 4, "n": 2)", prompt),
              "best_of must be in [1, 2] (--max-choices), got 4");
    for (const char* const name : {"n", "best_of"}) {
      EXPECT_EQ(error(Concat(R"("use_beam_search": true, ")", name, R"(": 3)"),
                      prompt),
                Concat(name, " must be in [1, 2] (--max-choices), got 3"));
    }
  }
  EXPECT_EQ(error(R"("n": 2)", R"("a")"), "");
  EXPECT_EQ(error(R"("n": 2)", R"(["a", "b"])"),
            "prompt must make at most 2 sequences of all prompts "
            "(--max-choices), got 2 times 2");
  EXPECT_EQ(Message(ReadCall(Api::kChat,
                             R"({"messages": [{"role": "a"}], "n": 3})", limits)
                        .status()),
            "n must be in [1, 2] (--max-choices), got 3");
}

}  // namespace
}  // namespace espalier::openai
