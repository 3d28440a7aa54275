// Cost of renderings with megabytes of input, measured by work: how often the
// clock is read, and how many bytes are made at most.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tests/status_matchers.h"
#include "tests/std_hash_collisions.h"
#include "text/jinja/budget.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/template.h"

namespace espalier::jinja {
namespace {

using ::espalier::testing::StatusIs;
using ::espalier::testing::StringsOfOneStdHash;
using ::testing::HasSubstr;

constexpr int64_t kMegabyte = 1'000'000;
constexpr int64_t kManyBytes = 1'000'000'000;

// A clock that moves on by 300 ms whenever it is looked at.
int num_looks = 0;
Budget::Clock::time_point SlowNow() {
  return Budget::Clock::time_point(std::chrono::milliseconds(300) *
                                   num_looks++);
}
Budget::Clock::time_point StoppedNow() {
  ++num_looks;
  return {};
}

class BudgetTest : public ::testing::Test {
 protected:
  BudgetTest() { num_looks = 0; }
};

TEST_F(BudgetTest, TheClockIsLookedAtAsOftenAsWorkIsTaken) {
  Budget budget({}, kManyBytes, &StoppedNow);
  EXPECT_EQ(num_looks, 1);
  for (int i = 0; i < 1000; ++i) budget.TakeBytes(kMegabyte / 10);
  EXPECT_EQ(num_looks, 1001);
  for (int i = 0; i < 64; ++i) budget.TakeBytes(1 << 10);
  EXPECT_EQ(num_looks, 1002);
  for (int i = 0; i < 1024 * 10; ++i) budget.TakeSteps(1);
  EXPECT_EQ(num_looks, 1012);
  budget.TakeSteps(1'000'000);
  EXPECT_EQ(num_looks, 1013);
}

std::string ErrorOfTaking(int64_t steps, size_t bytes, int64_t input_bytes) {
  Budget budget({}, input_bytes);
  try {
    budget.TakeSteps(steps);
    budget.TakeBytes(bytes);
  } catch (const TemplateError& error) {
    return error.message();
  }
  return "no error";
}

TEST_F(BudgetTest, ErrorsNameTheLimit) {
  EXPECT_EQ(ErrorOfTaking(60'200, 2'107'152, 10), "no error");
  EXPECT_EQ(ErrorOfTaking(60'201, 0, 10),
            "takes too many steps: more than the 60200 steps that a rendering "
            "of 10 bytes of inputs may");
  EXPECT_EQ(ErrorOfTaking(0, 2'107'153, 10),
            "takes too much memory: more than the 2107152 bytes that a "
            "rendering of 10 bytes of inputs may");
}

TEST_F(BudgetTest, NoInputMakesItLargerThanItsMost) {
  EXPECT_EQ(ErrorOfTaking(32'000'000, 1 << 30, kManyBytes), "no error");
  EXPECT_THAT(ErrorOfTaking(32'000'001, 0, kManyBytes),
              HasSubstr("more than the 32000000 steps"));
  EXPECT_THAT(ErrorOfTaking(0, (1 << 30) + 1, kManyBytes),
              HasSubstr("more than the 1073741824 bytes"));
}

// Returns the error in which `source` must end, and takes its cost from
// `budget`.
std::string ErrorWithin(const std::string& source, const std::string& content,
                        Budget* budget) {
  Names names;
  const Body body = Parser::Parse(source, &names);
  Dict inputs;
  inputs.Set(Value::String("content"), Value::String(Text(content, true)));
  Evaluator evaluator(names, inputs, budget, absl::Now());
  try {
    return "no error: " + evaluator.Render(body).bytes();
  } catch (const TemplateError& error) {
    return error.message();
  }
}

// Each of them once too much, but not twice.
TEST_F(BudgetTest, OperationsOnLongTextsEndSoonAfterTheTime) {
  const std::string content(kMegabyte, 'a');
  for (const char* const use :
       {"content|title", "content|upper", "content ~ 'a'", "content[1:]",
        "content|replace('b', 'c')", "'b' in content", "content|tojson",
        "content|length", "content.find('b')", "content.split('b')"}) {
    num_looks = 0;
    Budget budget({}, static_cast<int64_t>(content.size()), &SlowNow);
    EXPECT_EQ(ErrorWithin("{% for i in range(100000) %}{% set x = " +
                              std::string(use) + " %}{% endfor %}",
                          content, &budget),
              "takes more than 1000 ms")
        << use;
    EXPECT_LE(budget.bytes(), 6 * 2 * content.size()) << use;
  }
}

TEST_F(BudgetTest, WhatIsMadeIsBoundedHoweverLongTheInputs) {
  const auto error_of = [](const char* use, int64_t num_bytes,
                           const RenderLimits& limits) {
    Budget budget(limits, num_bytes, &StoppedNow);
    return ErrorWithin("{% set x = " + std::string(use) + " %}",
                       std::string(num_bytes, 'a'), &budget);
  };
  EXPECT_THAT(error_of("content * 900", 3 * kMegabyte, {}),
              HasSubstr("takes too much memory: more than the 1073741824 "
                        "bytes that a rendering of 3000000 bytes"));
  // Elements of lists take more than their bytes of text.
  for (const char* const use :
       {"[1] * 600000", "content|list", "(content * 30)[::2]",
        "content.split('a')", "content.rsplit('a')",
        "content.replace('a', ' b').split()",
        "content.replace('a', '\n').splitlines()",
        "[1] * 200000 + [1] * 200000",
        "[1] * 400000 + [[1] * 200000][0][1:]"}) {
    EXPECT_THAT(error_of(use, kMegabyte / 5, {.max_bytes = 16 << 20}),
                HasSubstr("takes too much memory: more than the 16777216"))
        << use;
  }
}

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

TEST(RenderLimitsTest, ALongConversationIsRendered) {
  json::array messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(
        {{"role", "user"}, {"content", std::string(5000, 'a') + "</b>c\nd"}});
  }
  Inputs inputs;
  ASSERT_OK(inputs.Set("messages", messages));
  const auto parsed = Template::Parse(
      "{% for message in messages %}{% set content = message.content %}"
      "{{ message.role|upper }}{{ content.split('</b>')[-1].strip() }}"
      "{% if content[:1] == 'a' %}{{ content|trim }}{% endif %}{% endfor %}");
  const auto text = (*parsed)->Render(inputs);
  ASSERT_OK(text);
  EXPECT_EQ(text->size(), 2000 * (4 + 3 + 5007));
}

}  // namespace
}  // namespace espalier::jinja
