// What renderings with megabytes of inputs may cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/status_matchers.h"
#include "tests/std_hash_collisions.h"
#include "text/jinja/template.h"

namespace espalier::jinja {
namespace {

using ::espalier::testing::StringsOfOneStdHash;

// The budget begins once the inputs are there: reading them takes no more for
// some keys than for others.
TEST(RenderLimitsTest, KeysThatShareAStdHashAreReadAsOthers) {
  json::object message;
  for (const std::string& key : StringsOfOneStdHash(100'000)) {
    message[key] = 1;
  }
  message["role"] = "user";
  Inputs inputs;
  ASSERT_OK(inputs.Set("messages", json::array{message}));
  const auto parsed = Template::Parse("{{ messages[0].role }}").value();
  EXPECT_EQ(parsed->Render(inputs).value().bytes(), "user");
}

}  // namespace
}  // namespace espalier::jinja
