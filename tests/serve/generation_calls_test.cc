// Calls that generate: their responses, and their ends.
#include "serve/generation_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/field_error.h"
#include "serve/prompt_requests.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kRunning[] = "vllm:num_requests_running";
constexpr char kWaiting[] = "vllm:num_requests_waiting";
constexpr char kPagesHeld[] = "vllm:kv_cache_usage_perc";

class GenerationCallsTest : public ServerFixture {
 protected:
  // Waits until `count` requests run or wait.
  bool AwaitOpen(int count) {
    for (int i = 0; i < 2'000; ++i) {
      if (Metric(kRunning) + Metric(kWaiting) == count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  // On an engine that runs one request at a time, and is held: one that runs,
  // and `call` that waits behind it.
  void RunAndWait(RawClient& running, RawClient& waiting,
                  std::string_view call) {
    running.Send(
        PostText("/v1/completions", R"({"prompt": [4], "max_tokens": 2})"));
    EXPECT_TRUE(AwaitMetric(kRunning, 1));
    waiting.Send(PostText("/v1/completions", call));
    EXPECT_TRUE(AwaitMetric(kWaiting, 1));
  }

  // Texts of the choices of an answer, by index.
  static std::vector<std::string> TextsOf(const RawResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<std::string> texts;
    const json::value answer = ParseJson(response.body).value();
    for (const json::value& choice : answer.at("choices").as_array()) {
      EXPECT_EQ(choice.at("index").as_int64(), std::ssize(texts));
      texts.emplace_back(choice.at("text").as_string());
    }
    return texts;
  }

  // Returns the streamed text of each choice, its pieces joined.
  static std::map<int64_t, std::string> StreamedTextsOf(
      const RawResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.is_whole);
    const Events events = ReadEvents(response.body);
    EXPECT_TRUE(events.is_done);
    std::map<int64_t, std::string> texts;
    std::map<int64_t, int> num_ends;
    for (const json::value& event : events.all) {
      for (const json::value& choice : event.at("choices").as_array()) {
        const int64_t index = choice.at("index").as_int64();
        EXPECT_EQ(num_ends[index], 0) << "a choice goes on after its end";
        texts[index] += choice.at("text").as_string();
        num_ends[index] += !choice.at("finish_reason").is_null();
      }
    }
    for (const auto& [index, count] : num_ends) EXPECT_EQ(count, 1) << index;
    return texts;
  }
};

TEST_F(GenerationCallsTest, AnswersAreThoseOfTheGenerator) {
  Start();
  Generator generator = MakeGenerator();
  for (const auto& [field, beams] :
       {std::pair("\"num_beams\": 4", 4),
        std::pair("\"use_beam_search\": true", 4)}) {
    const std::vector<std::string> texts = TextsOf(
        Post("/v1/completions",
             Concat(R"({"prompt": "It rains.", "max_tokens": 9, "n": 4, )",
                    field, "}")));
    GenerationRequest request{"It rains."};
    request.params.num_beams = beams;
    request.params.num_return_sequences = 4;
    request.params.max_new_tokens = 9;
    ASSERT_OK_AND_ASSIGN(const Generation expected,
                         generator.Generate(request));
    EXPECT_EQ(texts, expected.texts);
  }
}

TEST_F(GenerationCallsTest, AStreamIsTheWholeAnswer) {
  Start();
  for (const char* const how :
       {R"("temperature": 0)", R"("n": 5, "seed": 3)",
        R"("n": 3, "num_beams": 6)", R"("num_beams": 4)",
        R"("best_of": 6, "n": 2, "seed": 9)",
        R"("num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5)"}) {
    const std::string call = Concat(
        R"({"prompt": ["It rains.", "Yes", "No"], "max_tokens": 12, )", how);
    const std::vector<std::string> whole =
        TextsOf(Post("/v1/completions", call + "}"));
    const auto streamed =
        StreamedTextsOf(Post("/v1/completions", call + R"(, "stream": true})"));
    ASSERT_EQ(streamed.size(), whole.size()) << how;
    // In a stream samples are ordered by number, and in a whole response best
    // first.
    const size_t per_prompt = whole.size() / 3;
    for (size_t prompt = 0; prompt < 3; ++prompt) {
      std::vector<std::string> these, those;
      for (size_t i = 0; i < per_prompt; ++i) {
        these.push_back(streamed.at(prompt * per_prompt + i));
        those.push_back(whole[prompt * per_prompt + i]);
      }
      EXPECT_THAT(these, ::testing::UnorderedElementsAreArray(those)) << how;
    }
  }
}

TEST_F(GenerationCallsTest, AnswersNameTheDefaultsThatTheyTook) {
  Start({.defaults = R"({"num_beams": 3, "max_tokens": 4})"});
  for (const char* const stream : {"", R"(, "stream": true)"}) {
    const RawResponse answer =
        Post("/v1/completions",
             Concat(R"({"prompt": "It rains.", "n": 2)", stream, "}"));
    EXPECT_THAT(answer.body,
                HasSubstr(R"("defaults":{"num_beams":3,"max_new_tokens":4})"));
  }
}

TEST_F(GenerationCallsTest, DefaultsOfLogProbsOfPromptsAreAnswered) {
  Start({.defaults = R"({"prompt_logprobs": 1, "logprobs": 2})"});
  const json::value by_default =
      *ParseJson(Post("/v1/completions",
                      R"({"prompt": [4, 5, 6], "max_tokens": 2, "seed": 1})")
                     .body);
  const json::value by_call =
      *ParseJson(Post("/v1/completions",
                      R"({"prompt": [4, 5, 6], "max_tokens": 2, "seed": 1,
               "prompt_logprobs": 1, "logprobs": 2})")
                     .body);
  const json::value& choice = by_default.at("choices").at(0);
  EXPECT_EQ(choice.at("prompt_logprobs").as_array().size(), 3);
  EXPECT_EQ(choice, by_call.at("choices").at(0));
}

TEST_F(GenerationCallsTest, DefaultsExcludedBySpeculationHaveAWarning) {
  Start({.defaults = R"({"num_beams": 3, "do_sample": true, "n": 3})"});
  const auto body = [&](const std::string& fields) {
    return Post("/v1/completions",
                R"({"prompt": [4, 5, 6], "max_tokens": 2)" + fields + "}")
        .body;
  };
  EXPECT_THAT(body(R"(, "speculate": "ngram")"),
              HasSubstr("does not go with speculate ngram"));
  EXPECT_THAT(body(""), HasSubstr(R"("do_sample":true)"));
  EXPECT_THAT(body(""), Not(HasSubstr("warnings")));
}

TEST_F(GenerationCallsTest, SpecialTokensOfNoTextAreWarnedOf) {
  constexpr std::string_view kBody =
      R"({"prompt": [4], "max_tokens": 1, "skip_special_tokens": false})";
  const auto has_warnings = [&] {
    const RawResponse response = Post("/v1/completions", kBody);
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)->as_object().contains("warnings");
  };
  Start();
  EXPECT_FALSE(has_warnings());
  Listen();
  absl::StatusOr<Generator> without_text = Generator::Create(
      std::make_shared<testing::HeldModel>(TextModelWithPages()),
      /*tokenizer=*/nullptr, {.num_threads = 1});
  ASSERT_OK(without_text);
  ASSERT_OK(server_->Serve(*std::move(without_text), "toy"));
  EXPECT_TRUE(has_warnings());
  EXPECT_THAT(Post("/v1/completions", kBody).body,
              HasSubstr("skip_special_tokens false has no effect"));
}

TEST_F(GenerationCallsTest, ACallWithAKeyMayShareNoPages) {
  Start({.api_keys = ApiKeys({"the-secret"})});
  const RawResponse answer =
      Post("/v1/completions",
           R"({"prompt": "It rains.", "max_tokens": 2, "prefix_cache": false})",
           "Authorization: Bearer the-secret\r\n");
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(GenerationCallsTest, ManyAtOnceAreAnsweredAsAlone) {
  Start();
  const auto call = [](int i) {
    return Concat(R"({"max_tokens": )", 1 + i % 9, R"(, "prompt": [)", 3 + i,
                  ", 5], ",
                  i % 2 == 0 ? R"("num_beams": )" : R"("seed": 1, "n": )",
                  2 + i % 5, i % 3 == 0 ? R"(, "stream": true})" : "}");
  };
  const auto body = [](const RawResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    if (response.Find("content-type").starts_with("text/event-stream")) {
      std::string texts;
      for (const auto& [index, text] : StreamedTextsOf(response)) {
        texts += Concat(index, text, "\n");
      }
      return texts;
    }
    return WriteJson(ParseJson(response.body)->at("choices"));
  };
  constexpr int kCalls = 60;
  std::vector<std::string> alone;
  for (int i = 0; i < kCalls; ++i) {
    alone.push_back(body(Post("/v1/completions", call(i))));
  }
  std::vector<std::string> together(kCalls);
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < kCalls; ++i) {
      clients.emplace_back(
          [&, i] { together[i] = body(Post("/v1/completions", call(i))); });
    }
  }
  EXPECT_EQ(together, alone);
}

TEST_F(GenerationCallsTest, AClientThatGoesEndsItsRequests) {
  Start();
  for (const char* const how : {"", R"(, "stream": true)"}) {
    for (const char* const prompt : {"[4, 5]", "[[4, 5], [6], [7, 8]]"}) {
      model_->Hold(true);
      RawClient client = Connect();
      client.Send(
          PostText("/v1/completions",
                   Concat(R"({"num_beams": 4, "max_tokens": 200, "prompt": )",
                          prompt, how, "}")));
      EXPECT_TRUE(AwaitOpen(std::string_view(prompt).size() > 6 ? 3 : 1));
      client.Close();
      EXPECT_TRUE(AwaitOpen(0)) << prompt << how;
      model_->Hold(false);
      EXPECT_TRUE(AwaitMetric(kPagesHeld, 0));
    }
  }
}

TEST_F(GenerationCallsTest, OneTooManyIsToldToComeBack) {
  Start({}, {.num_threads = 1, .max_running = 1, .max_waiting = 1});
  model_->Hold(true);
  RawClient running = Connect();
  RawClient waiting = Connect();
  RunAndWait(running, waiting, R"({"prompt": [4], "max_tokens": 2})");
  for (const char* const stream : {"", R"(, "stream": true)"}) {
    const RawResponse refused =
        Post("/v1/completions",
             Concat(R"({"prompt": [4], "max_tokens": 2)", stream, "}"));
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_THAT(refused.Find("retry-after"), Not(IsEmpty()));
  }
  model_->Hold(false);
  EXPECT_EQ(running.Receive().status, 200);
  EXPECT_EQ(waiting.Receive().status, 200);
}

TEST_F(GenerationCallsTest, MorePromptsThanMayEverBeOpenAreNoMatterOfWaiting) {
  Start({}, {.num_threads = 1, .max_running = 1, .max_waiting = 1});
  const auto post = [&](const char* prompts) {
    return Post("/v1/completions",
                Concat(R"({"max_tokens": 2, "prompt": )", prompts, "}"));
  };
  EXPECT_EQ(post("[[4], [4]]").status, 200);
  const RawResponse refused = post("[[4], [4], [4]]");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("prompt has 3 prompts"));
  EXPECT_THAT(refused.body, HasSubstr("at most 2 may run and wait"));
  EXPECT_THAT(refused.body, HasSubstr(R"("param": "prompt")"));
}

// An error of one of several prompts names it; an error of all does not. Both
// may be found when requests are made, or when they are submitted.
TEST_F(GenerationCallsTest, ErrorsOfOnePromptAmongSeveralNameIt) {
  Start();
  const json::value models = *ParseJson(Get("/v1/models").body);
  const auto max_length =
      models.at("data").at(0).at("max_model_len").to_number<int64_t>();
  const auto tokens = [](int64_t count) {
    std::string list = "[4";
    for (int64_t i = 1; i < count; ++i) list += ",4";
    return list + "]";
  };
  const std::string too_long = tokens(max_length + 1);
  const auto error = [&](const std::string& more) {
    const RawResponse refused =
        Post("/v1/completions", Concat(R"({"max_tokens": 2, )", more, "}"));
    EXPECT_EQ(refused.status, 400) << refused.body;
    return refused.body;
  };
  for (const char* const stream : {"", R"("stream": true, )"}) {
    EXPECT_THAT(error(Concat(stream, R"("prompt": [[4], )", too_long, "]")),
                HasSubstr(R"("param": "prompt[1]")"));
    EXPECT_THAT(error(Concat(stream, R"("prompt": [[4], [5, 100000]])")),
                HasSubstr(R"("message": "prompt[1][1] must be )"));
    EXPECT_THAT(error(Concat(stream, R"("prompt": )", too_long)),
                HasSubstr(R"("param": "prompt")"));
    // A list of one prompt is a list.
    EXPECT_THAT(error(Concat(stream, R"("prompt": [[5, 100000]])")),
                HasSubstr(R"("message": "prompt[0][1] must be )"));
    for (const char* const side : {"left", "right"}) {
      EXPECT_THAT(error(Concat(stream, R"("truncate_prompt_tokens": 1, )",
                               R"("truncation_side": ")", side,
                               R"(", "prompt": [[5, 100000]])")),
                  HasSubstr(R"("message": "prompt[0][1] must be )"));
    }
    EXPECT_THAT(error(Concat(stream, R"("prompt": [5, 100000])")),
                HasSubstr(R"("message": "prompt[1] must be )"));
    EXPECT_THAT(error(Concat(stream, R"("prompt": [)", too_long, "]")),
                HasSubstr(R"("param": "prompt[0]")"));
    // A text is read before any is submitted.
    EXPECT_THAT(error(Concat(stream, R"("prompt": ["a", ")",
                             std::string(300 * max_length, 'a'), R"("])")),
                HasSubstr(R"("message": "prompt[1] must fit )"));
    // The prompt leaves too little room.
    const std::string full = error(
        Concat(stream, R"("prompt": [[4], )", tokens(max_length - 1), "]"));
    EXPECT_THAT(full, HasSubstr(R"("param": "max_tokens")"));
    EXPECT_THAT(full, HasSubstr("; of prompt[1]\""));
    // If several prompts leave too little room, the error names the one that
    // leaves the least, whose limit fits all.
    const auto of_lengths = [&](int64_t max_tokens) {
      return Post(
          "/v1/completions",
          Concat("{", stream, R"("prompt": [)", tokens(max_length - 9), ", ",
                 tokens(max_length - 3), ", ", tokens(max_length - 5),
                 R"(], "max_tokens": )", max_tokens, "}"));
    };
    const std::string tightest = of_lengths(10).body;
    EXPECT_THAT(tightest, HasSubstr("max_tokens must be at most 3 (a context"));
    EXPECT_THAT(tightest, HasSubstr("; of prompt[1]\""));
    EXPECT_EQ(of_lengths(3).status, 200);
    EXPECT_THAT(
        error(Concat(stream, R"("temperature": -1, "prompt": [[4], [5]])")),
        HasSubstr(R"("param": "temperature")"));
  }
  EXPECT_THAT(error(R"("prompt": [[4], [5]], "allowed_token_ids": [6], )"
                    R"("suppress_tokens": [6])"),
              HasSubstr("; of prompt["));
}

// An error of a request that can never fit names its prompt; a full queue names
// none.
TEST_F(GenerationCallsTest, OnlyErrorsOfARequestNameItsPrompt) {
  Start({}, {.num_threads = 1, .max_candidates = 4});
  const RawResponse never =
      Post("/v1/completions", R"({"prompt": [[4], [5]], "num_beams": 4})");
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_THAT(never.body, HasSubstr("the request can never fit"));
  EXPECT_THAT(never.body, HasSubstr("; of prompt[0]\", "));
  EXPECT_THAT(never.body, HasSubstr(R"("param": null)"));
  Start({}, {.num_threads = 1, .max_running = 1, .max_waiting_tokens = 6});
  model_->Hold(true);
  RawClient running = Connect();
  RawClient waiting = Connect();
  RunAndWait(running, waiting, R"({"prompt": [4, 5, 6, 7], "max_tokens": 2})");
  const RawResponse full = Post(
      "/v1/completions", R"({"prompt": [[4, 5], [6, 7]], "max_tokens": 2})");
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_THAT(full.body, HasSubstr("too many prompt tokens wait"));
  EXPECT_THAT(full.body, Not(HasSubstr("; of prompt")));
  model_->Hold(false);
  EXPECT_EQ(running.Receive().status, 200);
  EXPECT_EQ(waiting.Receive().status, 200);
}

// As where defaults of the server make beams of each.
TEST(OfPromptTest, WhatAllPromptsMakeTogetherIsOfNone) {
  const absl::Status status = InvalidField(
      "`prompt` must make at most 2", DependsOnPrompts{},
      " sequences of all prompts (--max-choices)", Got("2 times 4"));
  const openai::Call call = {.prompts = {"a", "b"}, .prompts_are_list = true};
  EXPECT_EQ(OfPrompt(status, 0, call), status);
  EXPECT_THAT(
      OfPrompt(InvalidField("`prompt` must be x"), 1, call),
      StatusIs(absl::StatusCode::kInvalidArgument, "prompt[1] must be x"));
}

TEST_F(GenerationCallsTest, TheModelTellsNoMoreSequencesThanARequestMayHave) {
  const auto models = [this](openai::Limits limits) {
    Start({.requests = limits}, {.num_threads = 1, .max_beams = 4});
    return Get("/v1/models").body;
  };
  EXPECT_THAT(models({.max_num_beams = 3}),
              HasSubstr(R"("max_num_beams":3,"max_n":4)"));
  EXPECT_THAT(models({.max_n = 3}),
              HasSubstr(R"("max_num_beams":4,"max_n":3)"));
  EXPECT_THAT(models({.max_choices = 2}),
              HasSubstr(R"("max_num_beams":2,"max_n":2)"));
}

TEST_F(GenerationCallsTest, TheModelListsNoMoreTokensThanItHasRoomFor) {
  const auto card = [this](int64_t limit) {
    Start({.requests = {.max_tokens = limit}});
    return ParseJson(Get("/v1/models").body)->at("data").at(0);
  };
  const json::value unlimited = card(openai::Limits().max_tokens);
  const int64_t most =
      unlimited.at("espalier").at("max_tokens").to_number<int64_t>();
  EXPECT_LT(most, unlimited.at("max_model_len").to_number<int64_t>());
  const auto status = [this](int64_t max_tokens) {
    return Post("/v1/completions",
                Concat(R"({"prompt": [4], "max_tokens": )", max_tokens, "}"))
        .status;
  };
  EXPECT_EQ(status(most), 200);
  EXPECT_EQ(status(most + 1), 400);
  EXPECT_EQ(card(3).at("espalier").at("max_tokens"), 3);
}

TEST_F(GenerationCallsTest, ARequestThatCanNeverFitIsNoMatterOfWaiting) {
  Start({}, {.num_threads = 1, .max_beams = 4});
  const RawResponse refused =
      Post("/v1/completions", R"({"prompt": [4], "num_beams": 5})");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("num_beams"));
  Start({.defaults = R"({"num_beams": 3})"},
        {.num_threads = 1, .max_beams = 4});
  EXPECT_THAT(Post("/v1/completions", R"({"prompt": [4], "n": 5})").body,
              HasSubstr("\"n must be at most 4 (--max-beams, what a step has "
                        "room for), got 5\""));
}

TEST_F(GenerationCallsTest, OneBadPromptRefusesAll) {
  Start();
  const RawResponse refused =
      Post("/v1/completions", R"({"prompt": [[4], [100000]], "stream": true})");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("100000"));
  EXPECT_EQ(Metric(kRunning), 0);
}

TEST_F(GenerationCallsTest, WhatIsWrongIsNamedAsTheCallHasIt) {
  Start();
  struct Case {
    std::string body, begin, param;
  };
  const Case cases[] = {
      {R"({"prompt": [[1], [4]], "n": 0})", "n must be ", "n"},
      {R"({"prompt": [4], "max_tokens": 5, "max_new_tokens": 6})",
       "max_tokens and max_new_tokens are the same field, got 5 and 6",
       "max_tokens"},
      {R"({"prompt": [4], "max_new_tokens": "x"})", "max_new_tokens must be ",
       "max_new_tokens"},
      {R"({"prompt": [4], "max_new_tokens": 0})", "max_new_tokens must be ",
       "max_new_tokens"},
  };
  for (const Case& wrong : cases) {
    const RawResponse refused = Post("/v1/completions", wrong.body);
    EXPECT_EQ(refused.status, 400) << wrong.body;
    EXPECT_THAT(refused.body,
                HasSubstr(Concat(R"({"message": ")", wrong.begin)));
    EXPECT_THAT(refused.body,
                HasSubstr(Concat(R"("param": ")", wrong.param, "\"")));
  }
}

TEST_F(GenerationCallsTest, DrainingLetsEndWhatRunsAndTakesNoMore) {
  Start();
  model_->Hold(true);
  RawClient running = Connect();
  running.Send(
      PostText("/v1/completions", R"({"prompt": [4], "max_tokens": 2})"));
  EXPECT_TRUE(AwaitMetric(kRunning, 1));
  std::jthread drain([&] { EXPECT_EQ(server_->Drain(absl::Seconds(20)), 0); });
  while (Get("/ready").status != 503) std::this_thread::yield();
  EXPECT_EQ(Get("/health").status, 200);
  const RawResponse refused =
      Post("/v1/completions", R"({"prompt": [4], "max_tokens": 2})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.Find("retry-after"), Not(IsEmpty()));
  model_->Hold(false);
  EXPECT_EQ(running.Receive().status, 200);
}

TEST_F(GenerationCallsTest, WhatDrainingCutsOffIsToldSo) {
  Start();
  model_->HoldAfter(3);
  RawClient streaming = Connect();
  streaming.Send(PostText(
      "/v1/completions",
      R"({"prompt": [4], "ignore_eos": true, "max_tokens": 9, "stream": true})"));
  RawClient whole = Connect();
  whole.Send(
      PostText("/v1/completions",
               R"({"prompt": [4], "ignore_eos": true, "max_tokens": 9})"));
  EXPECT_TRUE(AwaitOpen(2));
  EXPECT_EQ(server_->Drain(absl::Milliseconds(50)), 2);
  const RawResponse cut = streaming.Receive();
  EXPECT_EQ(cut.status, 200);
  EXPECT_TRUE(cut.is_whole);
  const Events events = ReadEvents(cut.body);
  EXPECT_TRUE(events.is_done);
  ASSERT_FALSE(events.all.empty());
  EXPECT_THAT(WriteJson(events.all.back()), HasSubstr("shuts down"));
  const RawResponse refused = whole.Receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("shuts down"));
}

}  // namespace
}  // namespace espalier::serve
