// The names of the model that a server has, and calls for others.
#include "serve/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

class ServedModelTest : public ServerFixture {};

TEST_F(ServedModelTest, NamesOfModelsMayHaveSlashes) {
  ServerOptions options;
  options.port = 0;
  options.model_name = "org/toy";
  ASSERT_OK_AND_ASSIGN(server_, Server::Listen(options));
  ASSERT_OK(server_->Serve(MakeGenerator(), "models/toy"));
  EXPECT_EQ(Get("/v1/models/org/toy").status, 200);
  EXPECT_EQ(Get("/v1/models/org%2Ftoy").status, 200);
  EXPECT_THAT(Get("/v1/models/org/other").body, HasSubstr("model_not_found"));
}

TEST_F(ServedModelTest, AnotherModelIsNotServedByAnyRoute) {
  Start();
  for (const auto& [path, fields] :
       {std::pair("/tokenize", R"("prompt": "a")"),
        std::pair("/detokenize", R"("tokens": [70])"),
        std::pair("/v1/completions", R"("prompt": "a", "max_tokens": 1)")}) {
    const std::string begin = Concat("{", fields, R"(, "model": )");
    EXPECT_EQ(Post(path, begin + R"("toy"})").status, 200) << path;
    const RawResponse other = Post(path, begin + R"("other"})");
    EXPECT_EQ(other.status, 404) << path;
    EXPECT_THAT(other.body,
                HasSubstr(R"("param": "model", "code": "model_not_found")"))
        << path;
  }
}

TEST_F(ServedModelTest, AModelMayHaveSeveralNames) {
  Start({.model_aliases = {"org/small", "other"}});
  const json::value models = ParseJson(Get("/v1/models").body).value();
  for (const char* const name : {"toy", "org/small", "other"}) {
    const RawResponse card = Get(Concat("/v1/models/", name));
    EXPECT_EQ(card.status, 200) << name;
    EXPECT_THAT(card.body, HasSubstr(Concat(R"("id":")", name, '"')));
    EXPECT_THAT(WriteJson(models), HasSubstr(Concat(R"("id": ")", name, '"')));
    const RawResponse answer = Post(
        "/v1/completions",
        Concat(R"({"prompt": [4], "max_tokens": 1, "model": ")", name, "\"}"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(R"("model":"toy")"));
  }
  EXPECT_EQ(models.at("data").as_array().size(), 3);
  EXPECT_EQ(Get("/v1/models/small").status, 404);
}

TEST_F(ServedModelTest, AliasesAreNamesOfTheirOwn) {
  for (const std::string alias : {"\xff", "", "toy", "small"}) {
    Listen({.model_aliases = {"small", alias}});
    EXPECT_THAT(server_->Serve(MakeGenerator(), "models/toy"),
                StatusIs(kInvalid, HasSubstr("model_aliases must be UTF-8, "
                                             "not empty and all different, "
                                             "got ")));
  }
}

}  // namespace
}  // namespace espalier::serve
