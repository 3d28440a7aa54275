// POST /generative_scoring: scores of items and of labels, equal to those of an
// echo, and bounds that a body meets before anything is made of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value_to.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "espalier/generator.h"
#include "openai/score_call.h"
#include "tests/family_models.h"
#include "tests/scratch_directory.h"
#include "tests/serve/server_fixture.h"
#include "tests/source_tree.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;

class ScoreCallsTest : public ServerFixture {
 protected:
  ScoreCallsTest() {
    Listen({});
    absl::StatusOr<Generator> generator =
        Generator::Load(SourcePath("models/en-fr"), {.num_threads = 1});
    EXPECT_OK(generator);
    EXPECT_OK(server_->Serve(*std::move(generator), "models/en-fr"));
  }

  json::value Answer(const std::string& path, const std::string& body) {
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body).value();
  }

  json::object Refused(const std::string& body) {
    const RawResponse response = Post("/generative_scoring", body);
    EXPECT_EQ(response.status, 400) << response.body;
    return ParseJson(response.body)->at("error").as_object();
  }
};

TEST_F(ScoreCallsTest, ItemsHaveTheSumsOfAnEcho) {
  const std::string query = "[1, 4, 502, 282, 283, 2707, 270, 5]";
  const json::value scored =
      Answer("/generative_scoring",
             Concat(R"({"query": )", query,
                    R"(, "items": [[300, 301, 302], [300, 301], [300]]})"));
  EXPECT_EQ(scored.at("object"), "list");
  double sum_of_shares = 0;
  for (size_t i = 0; i < 3; ++i) {
    const json::object& item = scored.at("data").at(i).as_object();
    EXPECT_EQ(item.at("index"), i);
    EXPECT_EQ(item.at("object"), "score");
    EXPECT_FALSE(item.at("is_greedy").as_bool());
    sum_of_shares += item.at("score").to_number<double>();
    const std::string ids = std::string("300, 301, 302").substr(0, 13 - 5 * i);
    const json::value echo = Answer(
        "/v1/completions",
        Concat(R"({"prompt": )", query.substr(0, query.size() - 1), ", ", ids,
               R"(], "echo": true, "logprobs": 1, "max_tokens": 0})"));
    const json::array& all =
        echo.at("choices").at(0).at("logprobs").at("token_logprobs").as_array();
    double sum = 0;
    for (size_t j = 8; j < all.size(); ++j) sum += all[j].to_number<double>();
    EXPECT_NEAR(item.at("logprob").to_number<double>(), sum, 1e-5);
    EXPECT_EQ(item.at("token_ids").as_array().size(), all.size() - 8);
    EXPECT_EQ(item.at("ranks").as_array().size(), all.size() - 8);
  }
  EXPECT_NEAR(sum_of_shares, 1, 1e-6);
  EXPECT_EQ(scored.at("usage").at("prompt_tokens"), 8 + 3 + 2 + 1);
  EXPECT_EQ(scored.at("usage").at("completion_tokens"), 0);
}

TEST_F(ScoreCallsTest, LabelsAreScoredAfterEveryItem) {
  const std::string body =
      R"({"query": [1, 4, 502], "items": [[5], [282, 5]],
          "label_token_ids": [300, 301], "apply_softmax": )";
  const json::value shares = Answer("/generative_scoring", body + "true}");
  const json::value chances = Answer("/generative_scoring", body + "false}");
  for (size_t i = 0; i < 2; ++i) {
    const json::object& item = chances.at("data").at(i).as_object();
    const double yes = item.at("label_logprobs").at(0).to_number<double>();
    const double no = item.at("label_logprobs").at(1).to_number<double>();
    EXPECT_NEAR(item.at("score").to_number<double>(), std::exp(yes), 1e-6);
    EXPECT_NEAR(shares.at("data").at(i).at("score").to_number<double>(),
                std::exp(yes) / (std::exp(yes) + std::exp(no)), 1e-6);
  }
  // Each item makes a prompt of its own.
  const json::value alone =
      Answer("/generative_scoring",
             R"({"query": [1, 4, 502, 282, 5], "items": [[300], [301]]})");
  EXPECT_NEAR(
      alone.at("data").at(0).at("logprob").to_number<double>(),
      chances.at("data").at(1).at("label_logprobs").at(0).to_number<double>(),
      1e-6);
}

TEST_F(ScoreCallsTest, TextsAreScoredAsTranslations) {
  const json::value scored =
      Answer("/generative_scoring",
             R"({"query": "Where is the station?", "append_eos": true,
          "temperature": 0.5,
          "items": ["Où se trouve la gare ?", "Il pleut."]})");
  const json::array& data = scored.at("data").as_array();
  EXPECT_TRUE(data[0].at("is_greedy").as_bool());
  EXPECT_GT(data[0].at("score").to_number<double>(), 0.99);
  EXPECT_EQ(scored.at("warnings").at(0),
            "unknown field \"temperature\"; it is a field of /v1/completions");
}

// espalier score is Generator::Score.
TEST_F(ScoreCallsTest, TextsHaveTheScoresOfAGenerator) {
  absl::StatusOr<Generator> generator =
      Generator::Load(SourcePath("models/en-fr"), {.num_threads = 1});
  ASSERT_OK(generator);
  const struct {
    const char* query;
    const char* item;
    const char* decoder_prompt;
    bool is_raw;
  } cases[] = {{"The sta", "tion.", "", true},
               {"un", "able", "", true},
               {"It rains", " here.", "", true},
               {"The sta", "tion.", " is", true},
               {"It rains.", "Il pleut.", "", false},
               {"It rains.", " pleut.", "Il", false}};
  for (const auto& pair : cases) {
    SCOPED_TRACE(Concat(pair.query, "|", pair.decoder_prompt, "|", pair.item));
    json::object body = {{"query", pair.query},
                         {"items", json::array{pair.item}},
                         {"add_special_tokens", !pair.is_raw}};
    if (*pair.decoder_prompt) body["decoder_prompt"] = pair.decoder_prompt;
    const json::value answer = Answer("/generative_scoring", WriteJson(body));
    const json::object& item = answer.at("data").at(0).as_object();
    ScoreRequest request = {
        .prompt = pair.is_raw ? Prompt::Raw(pair.query) : Prompt(pair.query),
        .continuations = {std::string(pair.item)}};
    request.params.decoder_prompt = pair.decoder_prompt;
    const absl::StatusOr<Generation> scores = generator->Score(request);
    ASSERT_OK(scores);
    const ContinuationScore& score = scores->continuations[0];
    EXPECT_EQ(json::value_to<std::vector<TokenId>>(item.at("token_ids")),
              score.tokens);
    EXPECT_NEAR(item.at("logprob").to_number<double>(), score.cum_log_prob,
                1e-5);
  }
}

TEST_F(ScoreCallsTest, APromptAsLongAsTheContextIsEchoed) {
  std::string ids = "1";
  for (int i = 1; i < 1024; ++i) ids += ", 300";
  const json::value echo =
      Answer("/v1/completions",
             Concat(R"({"prompt": [)", ids,
                    R"(], "echo": true, "logprobs": 0, "max_tokens": 0,
                       "logprobs_start": 1023})"));
  const json::array& all =
      echo.at("choices").at(0).at("logprobs").at("token_logprobs").as_array();
  ASSERT_EQ(all.size(), 1024);
  EXPECT_TRUE(all[1022].is_null());
  EXPECT_TRUE(all[1023].is_number());
  EXPECT_EQ(echo.at("usage").at("completion_tokens"), 0);
}

TEST_F(ScoreCallsTest, WrongBodiesAreRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "query must be there, got nothing"},
      {R"({"items": ["a"]})", "query must be there, got nothing"},
      {R"({"prompt": "a", "items": ["a"]})",
       "query must be there, got nothing; unknown field \"prompt\"; did you "
       "mean query?"},
      {R"({"query": "a"})", "items must be there, got nothing"},
      {R"({"query": "a", "items": ["b"], "request_id": "a\nb"})",
       "request_id must be visible ASCII"},
      {R"({"query": "a", "items": ["b"], "label_token_ids": [5],
           "append_eos": true})",
       "append_eos must be false with label_token_ids"},
      {R"({"query": "a", "items": ["b"], "append_eos": 1})",
       "append_eos must be true or false"},
      {R"({"query": "a", "items": []})", "items must not be empty, got []"},
      {R"({"query": "a", "items": ["b", ""]})", "items[1] must not be empty"},
      {R"({"query": "a", "items": [[1], [6000]]})", "items[1][0] must be"},
      {R"({"query": "a", "items": [[1], []]})", "items[1] must not be empty"},
      {R"({"query": "a", "items": "b"})",
       "items must be a list of strings, or"},
      {R"({"query": ["a"], "items": ["b"]})",
       "query must be a string or token ids, got"},
      // No form is named that would be refused.
      {R"({"query": 7, "items": ["b"]})",
       "query must be a string or token ids, got 7"},
      {R"({"query": [true], "items": ["b"]})",
       "query[0] must be an integer, got true"},
      {R"({"query": [], "items": ["b"]})", "query must not be empty"},
      {R"({"query": "a", "items": 7})",
       "items must be a list of strings, or of lists of token ids, got 7"},
      {R"({"query": "a", "items": [7]})",
       "items must be a list of strings, or of lists of token ids, got [7]"},
      {R"({"query": "a", "items": [true]})",
       "items must be a list of strings, or of lists of token ids, got [true]"},
      {R"({"query": [6000], "items": ["b"]})", "query[0] must be"},
      {R"({"query": "a", "items": ["b"], "label_token_ids": []})",
       "label_token_ids must not be empty"},
      {R"({"query": "a", "items": ["b"], "label_token_ids": [6000]})",
       "label_token_ids[0] must be"},
      {R"({"query": "a", "items": ["b"], "item_first": true})",
       "item_first must be false without label_token_ids"},
      {R"({"query": "a", "items": ["b"], "strict": true, "top_k": 1})",
       "unknown field \"top_k\""}};
  for (const auto& [body, message] : cases) {
    const json::object error = Refused(body);
    const std::string said(error.at("message").as_string());
    EXPECT_THAT(said, HasSubstr(message)) << body;
    // The message begins with the field, unless that is unknown.
    const std::string field = said.substr(0, said.find(' '));
    EXPECT_EQ(std::string(error.at("param").as_string()),
              field == "unknown" ? "top_k" : field)
        << body;
  }
  EXPECT_EQ(Post("/generative_scoring", R"({"query": "a", "items": ["b"],
                                            "model": "other"})")
                .status,
            404);
}

// Small bodies with much work: labels times items, many tokens, or texts with a
// long query before each.
TEST_F(ScoreCallsTest, MuchWorkIsRefusedBeforeItIsMade) {
  const auto list = [](const std::string& item, int count) {
    std::string items = item;
    for (int i = 1; i < count; ++i) items += "," + item;
    return items;
  };
  EXPECT_THAT(
      std::string(
          Refused(Concat(R"({"query": [1], "items": [)", list("[5]", 200),
                         R"(], "label_token_ids": [)", list("7", 2000), "]}"))
              .at("message")
              .as_string()),
      HasSubstr("label_token_ids must be at most 262144 of all items"));
  EXPECT_THAT(std::string(Refused(Concat(R"({"query": [1], "items": [)",
                                         list("[5]", 300),
                                         R"(], "label_token_ids": [7]})"))
                              .at("message")
                              .as_string()),
              HasSubstr("items must be at most 256 prompts"));
  // Without a template, so that items go on from it.
  std::string query;
  for (int i = 0; i < 170; ++i) query += "the station ";
  EXPECT_THAT(
      std::string(
          Refused(Concat(R"({"add_special_tokens": false, "query": ")", query,
                         R"(", "items": [)", list("\"b\"", 9000), "]}"))
              .at("message")
              .as_string()),
      HasSubstr("items must take at most 16777216 bytes"));
}

// BART's outputs begin with a forced token, after which labels are scored.
TEST_F(ServerFixture, LabelsFollowAForcedToken) {
  const testing::ScratchDirectory scratch;
  for (const std::string file : {"/config.json", "/model.safetensors"}) {
    std::filesystem::create_symlink(testing::FamilyPath("bart") + file,
                                    scratch.path() + file);
  }
  scratch.Write("generation_config.json", R"({"forced_bos_token_id": 17})");
  Listen({});
  absl::StatusOr<Generator> generator =
      Generator::Load(scratch.path(), {.num_threads = 1});
  ASSERT_OK(generator);
  ASSERT_OK(server_->Serve(*std::move(generator), "bart"));
  const auto label = [&](const std::string& rest) {
    const RawResponse response =
        Post("/generative_scoring",
             R"({"query": [21, 41], "items": [[59]], )" + rest + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return ParseJson(response.body)
        ->at("data")
        .at(0)
        .at("label_logprobs")
        .at(0)
        .to_number<double>();
  };
  EXPECT_EQ(
      label(R"("label_token_ids": [8])"),
      label(R"("label_token_ids": [8], "decoder_prompt_tokens": [3, 17])"));
  const RawResponse refused =
      Post("/generative_scoring",
           R"({"query": [21], "items": [[59]], "label_token_ids": [8, 17]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("label_token_ids[1] must have more"));
}

}  // namespace
}  // namespace espalier::serve
