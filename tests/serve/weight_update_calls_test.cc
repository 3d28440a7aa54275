// POST /update_weights_from_disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "espalier/generator.h"
#include "tests/model/tiny_model.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::FilesOf;
using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyShape;
using ::testing::HasSubstr;

constexpr char kRoute[] = "/update_weights_from_disk";

class WeightUpdateCallsTest : public ServerFixture {
 protected:
  WeightUpdateCallsTest()
      : a_(FilesOf(MakeTinyModel(TinyShape(), 1))),
        b_(FilesOf(MakeTinyModel(TinyShape(), 2))) {}

  void Serve(const TempDirectory& directory, bool allow_control = true) {
    server_.reset();
    Listen({.allow_control = allow_control});
    auto generator = Generator::Load(directory.path(), {.num_threads = 1});
    ASSERT_OK(generator);
    ASSERT_OK(server_->Serve(*std::move(generator), "tiny"));
  }
  std::string Update(const std::string& rest) {
    return Post(kRoute,
                Concat(R"({"model_path": ")", b_.path(), "\"", rest, "}"))
        .body;
  }
  // The answer to one prompt: its tokens' log-probabilities, and "espalier".
  std::pair<json::value, json::value> Answer() {
    const RawResponse response =
        Post("/v1/completions",
             R"({"prompt": [3, 4, 5, 6, 7], "max_tokens": 9, "num_beams": 3,
                 "logprobs": 1, "return_token_ids": true})");
    EXPECT_EQ(response.status, 200) << response.body;
    json::value answer = ParseJson(response.body).value();
    return {answer.at("choices"), answer.at("espalier")};
  }

  const TempDirectory a_;
  const TempDirectory b_;
};

TEST_F(WeightUpdateCallsTest, LaterAnswersAreOfTheOtherDirectory) {
  Serve(b_);
  const auto [by_b, run_of_b] = Answer();
  Serve(a_);
  const auto [by_a, run_of_a] = Answer();
  ASSERT_NE(by_a, by_b);
  EXPECT_FALSE(run_of_a.as_object().contains("weights_version"));
  EXPECT_EQ(Update(""), R"({"success": true, "weight_version": 1})");
  const auto [after, run] = Answer();
  EXPECT_EQ(after, by_b);
  EXPECT_EQ(run.at("weights_version"), 1);
  for (const char* const running : {"wait", "abort", "keep"}) {
    EXPECT_EQ(Update(Concat(R"(, "weight_version": 40, "running": ")", running,
                            "\"")),
              R"({"success": true, "weight_version": 40})");
  }
  EXPECT_EQ(Update(R"(, "abort_all_requests": true)"),
            R"({"success": true, "weight_version": 41})");
  EXPECT_EQ(Answer().second.at("weights_version"), 41);
}

TEST_F(WeightUpdateCallsTest, WhatIsWrongIsNamedAndChangesNothing) {
  Serve(a_);
  const json::value before = Answer().first;
  const std::pair<const char*, const char*> cases[] = {
      {"", "not JSON"},
      {"[]", "the body must be a JSON object, got []"},
      {"{}", "model_path must be there, got nothing"},
      {R"({"model_path": 7})", "model_path must be the path of a directory"},
      {R"({"model_path": ""})", "model_path must be the path of a directory"},
      {R"({"model_path": "/nowhere"})", "/nowhere"},
      {R"({"model_path": "/", "weight_version": 0})",
       "weight_version must be an integer of at least 1, got 0"},
      {R"({"model_path": "/", "weight_version": "1"})",
       "weight_version must be an integer"},
      {R"({"model_path": "/", "running": "stop"})",
       "running must be wait, abort or keep"},
      {R"({"model_path": "/", "abort_all_requests": 1})",
       "abort_all_requests must be true or false, got 1"},
      {R"({"model_path": "/", "abort_all_requests": true, "running": "keep"})",
       "abort_all_requests must not be beside running"},
      {R"({"model_path": "/", "load_format": "auto"})",
       "unknown field \"load_format\""}};
  for (const auto& [body, part] : cases) {
    const RawResponse response = Post(kRoute, body);
    EXPECT_GE(response.status, 400) << body;
    EXPECT_LT(response.status, 500) << body;
    EXPECT_THAT(
        ParseJson(response.body)->at("error").at("message").as_string().c_str(),
        HasSubstr(part));
  }
  EXPECT_EQ(Answer().first, before);
}

TEST_F(WeightUpdateCallsTest, ItNeedsControl) {
  Serve(a_, /*allow_control=*/false);
  EXPECT_THAT(Update(""), HasSubstr("--allow-control"));
}

}  // namespace
}  // namespace espalier::serve
