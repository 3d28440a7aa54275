// JSON-Schema-Test-Suite: no instance that a schema rejects is in the language,
// and the counts of those that are as they should be may only improve. With
// ESPALIER_SUITE_DETAILS in the environment it prints the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_configurations.h"
#include "tests/constrain/json_texts.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

struct Counts {
  int passed = 0;   // as the suite says
  int strict = 0;   // valid, not in the language
  int refused = 0;  // the schema is not compiled
  int lax = 0;      // invalid, in the language
};

double ThreadMilliseconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 +
         static_cast<double>(time.tv_nsec) / 1e6;
}

class Suite {
 public:
  // Runs the schemas of a file, which are one a line.
  Counts Run(const std::string& name, JsonSchemaDraft draft) {
    draft_ = draft;
    counts_ = {};
    std::ifstream file(
        SourcePath("tests/data/json_schema_test_suite/" + name + ".jsonl"));
    for (std::string line; std::getline(file, line);) {
      const auto group = ParseJson(line);
      EXPECT_TRUE(group.ok()) << group.status();
      if (group.ok()) RunGroup(group->as_object());
    }
    return counts_;
  }

  // Schemas with calls.
  int num_called() const { return num_called_; }
  int num_counted() const { return num_counted_; }

  void PrintTimes(const std::string& name) {
    if (times_.empty()) return;
    std::sort(times_.begin(), times_.end());
    std::cout << name << ": " << counts_.passed << " passed, " << counts_.strict
              << " too strict, " << counts_.refused << " refused, "
              << counts_.lax << " lax; compiled in p50 "
              << times_[times_.size() / 2] << ", p99 "
              << times_[times_.size() * 99 / 100] << ", max " << times_.back()
              << " ms\n";
    times_.clear();
  }

 private:
  void RunGroup(const json::object& group) {
    const bool prints = std::getenv("ESPALIER_SUITE_DETAILS") != nullptr;
    const std::string name = std::string(group.at("file").as_string()) + " | " +
                             std::string(group.at("description").as_string());
    const double begin = ThreadMilliseconds();
    const auto automaton =
        CompileJsonSchema(group.at("schema"), {.draft = draft_});
    times_.push_back(ThreadMilliseconds() - begin);
    // As far as it is compiled, with each nesting by a call, and with counters.
    std::vector<std::unique_ptr<PushdownConfigurations>> called;
    for (const JsonSchemaOptions& options :
         {JsonSchemaOptions{.draft = draft_, .calls_any_value = true},
          JsonSchemaOptions{.draft = draft_,
          .max_unrolled_length = 0,
          .max_unrolled_least = 0,
          .max_unrolled_lengths = 0}}) {
      auto language =
          CompileJsonSchemaWithCalls(WriteJson(group.at("schema")), options);
      if (!language.ok() ||
          !std::holds_alternative<PushdownAutomaton>(*language)) {
        continue;
      }
      const auto calls = std::make_shared<const PushdownAutomaton>(
          std::get<PushdownAutomaton>(*std::move(language)));
      called.push_back(
          std::make_unique<PushdownConfigurations>(calls, calls->bytes()));
      ++num_called_;
      if (calls->has_counters()) ++num_counted_;
    }
    const bool is_empty =
        !automaton.ok() &&
        Message(automaton.status())
            .starts_with("#: no JSON value satisfies the schema");
    if (prints && (!automaton.ok() || times_.back() > 50)) {
      std::cout << name << ": " << automaton.status() << " " << times_.back()
                << " ms " << (automaton.ok() ? automaton->num_states() : 0)
                << "\n";
    }
    for (const json::value& test : group.at("tests").as_array()) {
      const bool is_valid = test.at("valid").as_bool();
      if (!automaton.ok() && !is_empty) {
        ++counts_.refused;
        continue;
      }
      const bool accepts =
          !is_empty && AcceptsValue(*automaton, test.at("data"));
      const auto describe = [&] {
        return name + " | " + std::string(test.at("description").as_string()) +
               ": " + WriteJson(test.at("data"));
      };
      for (const auto& texts : called) {
        const bool is_called = AcceptsValue(*texts, test.at("data"));
        EXPECT_TRUE(is_valid || !is_called) << "lax: " << describe();
        EXPECT_TRUE(is_called || !accepts) << "with calls: " << describe();
      }
      if (accepts == is_valid) {
        ++counts_.passed;
      } else if (is_valid) {
        ++counts_.strict;
        if (prints) std::cout << "strict: " << describe() << "\n";
      } else {
        ++counts_.lax;
        ADD_FAILURE() << "lax: " << describe();
      }
    }
  }

  JsonSchemaDraft draft_ = JsonSchemaDraft::k2020_12;
  Counts counts_;
  std::vector<double> times_;
  int num_called_ = 0;
  int num_counted_ = 0;
};

struct SuiteFile {
  std::string name;
  JsonSchemaDraft draft;
  int min_passed;
  int max_strict;
  int max_refused;
  int min_counted;
};

class JsonSchemaSuiteTest : public ::testing::TestWithParam<SuiteFile> {};

TEST_P(JsonSchemaSuiteTest, NoInvalidInstanceIsInTheLanguage) {
  const SuiteFile& file = GetParam();
  Suite suite;
  const Counts counts = suite.Run(file.name, file.draft);
  suite.PrintTimes(file.name);
  EXPECT_EQ(counts.lax, 0);
  EXPECT_GT(suite.num_called(), 5);
  EXPECT_GE(suite.num_counted(), file.min_counted);
  EXPECT_GE(counts.passed, file.min_passed);
  EXPECT_LE(counts.strict, file.max_strict);
  EXPECT_LE(counts.refused, file.max_refused);
}

INSTANTIATE_TEST_SUITE_P(
    Files, JsonSchemaSuiteTest,
    ::testing::Values(SuiteFile{"draft2020-12", JsonSchemaDraft::k2020_12, 1162,
                                21, 116, 5},
                      SuiteFile{"draft2020-12_optional",
                                JsonSchemaDraft::k2020_12, 111, 4, 17, 0},
                      SuiteFile{"draft2020-12_format",
                                JsonSchemaDraft::k2020_12, 699, 65, 0, 0},
                      SuiteFile{"draft7", JsonSchemaDraft::k7, 861, 2, 64, 3}));

}  // namespace
}  // namespace espalier::testing
