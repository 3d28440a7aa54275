#include "tests/cli/reference.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/reference_cases.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

constexpr double kTolerance = 1e-4;  // relative, on scores

std::span<const json::value> Reference(size_t most) {
  static const auto* const lines =
      new std::vector<json::value>(ReferenceCases());
  return std::span(*lines).first(std::min(lines->size(), most));
}

bool Close(double a, double b) {
  return std::abs(a - b) <= kTolerance * std::max(std::abs(a), std::abs(b));
}

// Null, of greedy search, is close to anything.
bool ScoresAgree(const json::value& expected, const json::value& actual) {
  return expected.is_null() ||
         Close(expected.to_number<double>(), actual.to_number<double>());
}

// The reference decodes all tokens; a text has no special ones, which are left
// out before tokens become text, so no space of theirs opens it.
std::string WithoutTags(std::string_view text) {
  std::string rest(text);
  for (const std::string_view tag : {"<en>", "<fr>"}) {
    for (size_t at; (at = rest.find(tag)) != std::string::npos;) {
      rest.erase(at, tag.size());
      if (at == 0 && rest.starts_with(' ')) rest.erase(0, 1);
    }
  }
  return rest;
}

// True if `actual` is the reference at `rank`, or at a rank with the same score
// within the tolerance.
bool Matches(const json::array& expected, size_t rank,
             const json::value& actual) {
  for (const json::value& hypothesis : expected) {
    if (hypothesis.at("tokens") == actual.at("tokens")) {
      return WithoutTags(hypothesis.at("text").as_string()) ==
                 actual.at("text").as_string() &&
             ScoresAgree(hypothesis.at("score"), actual.at("score")) &&
             ScoresAgree(expected[rank].at("score"), actual.at("score"));
    }
  }
  return false;
}

// Checks fields that the reference implies but does not contain.
void ExpectConsistent(const json::value& line, const json::value& hypothesis) {
  const json::object& params = line.at("params").as_object();
  const double num_tokens = hypothesis.at("tokens").as_array().size();
  const double length_penalty =
      params.at("num_beams") == 1
          ? 1.0
          : params.at("length_penalty").to_number<double>();
  EXPECT_TRUE(Close(hypothesis.at("score").to_number<double>(),
                    hypothesis.at("cum_log_prob").to_number<double>() /
                        std::pow(num_tokens, length_penalty)));
  const json::value& last = hypothesis.at("tokens").as_array().back();
  const bool ends_in_eos =
      last == 2 || (params.contains("eos_token_id") && last == 262);
  EXPECT_EQ(hypothesis.at("finish_reason"),
            json::value(ends_in_eos ? "eos" : "length"));
}

}  // namespace

std::string ReferenceRequests(size_t most) {
  std::string input;
  for (const json::value& line : Reference(most)) {
    json::object params = line.at("params").as_object();
    params["num_return_sequences"] = line.at("hypotheses").as_array().size();
    input += WriteJson({{"prompt_tokens", line.at("prompt_tokens")},
                        {"params", params}}) +
             "\n";
  }
  return input;
}

void ExpectReferenceHypotheses(const std::string& output, size_t most) {
  const std::span<const json::value> reference = Reference(most);
  const std::vector<json::value> answers = ParseLines(output);
  ASSERT_EQ(answers.size(), reference.size());
  int num_hypotheses = 0;
  int num_swapped = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const json::array& expected = reference[i].at("hypotheses").as_array();
    const json::array& actual = answers[i].at("hypotheses").as_array();
    ASSERT_EQ(actual.size(), expected.size()) << "line " << i;
    std::set<std::string> tokens;
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_TRUE(Matches(expected, rank, actual[rank]))
          << "line " << i << ", rank " << rank << ": expected "
          << WriteJson(expected[rank]) << ", got " << WriteJson(actual[rank]);
      ExpectConsistent(reference[i], actual[rank]);
      tokens.insert(WriteJson(actual[rank].at("tokens")));
      ++num_hypotheses;
      num_swapped += actual[rank].at("tokens") != expected[rank].at("tokens");
    }
    EXPECT_EQ(tokens.size(), actual.size()) << "a hypothesis came twice";
  }
  std::printf("%d hypotheses, %d in another order within the tolerance\n",
              num_hypotheses, num_swapped);
}

}  // namespace espalier::testing
