// Sampling filters against transformers' own (tests/data/README.md): the kept
// tokens of a row, their probabilities, and draws from them.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/sample/sample.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

std::vector<double> Numbers(const json::value& list) {
  std::vector<double> numbers;
  for (const json::value& number : list.as_array()) {
    numbers.push_back(number.to_number<double>());
  }
  return numbers;
}

template <typename T>
void Read(const json::object& params, const char* name, T* out) {
  if (params.contains(name)) *out = params.at(name).to_number<T>();
}

SamplingParams ReadParams(const json::object& object) {
  SamplingParams params;
  Read(object, "temperature", &params.temperature);
  Read(object, "min_p", &params.min_p);
  Read(object, "top_k", &params.top_k);
  Read(object, "top_p", &params.top_p);
  Read(object, "typical_p", &params.typical_p);
  return params;
}

TEST(FilterReferencesTest, LeaveWhatTransformersLeave) {
  std::ifstream file(SourcePath("tests/data/filters.jsonl"));
  int num_rows = 0;
  for (std::string text; std::getline(file, text); ++num_rows) {
    ASSERT_OK_AND_ASSIGN(const json::value line, ParseJson(text));
    const std::vector<double> numbers = Numbers(line.at("logits"));
    const std::vector<float> logits(numbers.begin(), numbers.end());
    const std::vector<double> expected = Numbers(line.at("probabilities"));
    DrawOptions options = {.params = ReadParams(line.at("params").as_object())};
    const std::vector<double> actual =
        reference::DrawProbabilities(logits, options);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t token = 0; token < actual.size(); ++token) {
      EXPECT_EQ(actual[token] > 0, expected[token] > 0)
          << "line " << num_rows << ", token " << token;
      EXPECT_NEAR(actual[token], expected[token], 1e-6);
    }
    for (options.sample = 0; options.sample < 30; ++options.sample) {
      EXPECT_GT(expected[DrawRow(logits, options).token], 0)
          << "line " << num_rows;
    }
  }
  EXPECT_EQ(num_rows, 100);
}

}  // namespace
}  // namespace espalier
