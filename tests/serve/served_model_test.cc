// The names of the model that a server has, and calls for others.
#include "serve/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;

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
    const auto status = [&](std::string_view model) {
      return Post(path, Concat("{", fields, R"(, "model": ")", model, "\"}"))
          .status;
    };
    EXPECT_EQ(status("toy"), 200) << path;
    EXPECT_EQ(status("other"), 404) << path;
    EXPECT_THAT(Post(path, Concat("{", fields, R"(, "model": "other"})")).body,
                HasSubstr(R"("param": "model", "code": "model_not_found")"))
        << path;
  }
}

}  // namespace
}  // namespace espalier::serve
