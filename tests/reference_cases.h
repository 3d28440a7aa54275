// Lines of reference files (docs/models.md): a request, and the hypotheses that
// `generate` of transformers has for it.
#pragma once

#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "request/json/request_json.h"
#include "request/request.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier::testing {

inline std::vector<json::value> ReadReferenceLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<json::value> lines;
  for (std::string line; std::getline(file, line);) {
    const absl::StatusOr<json::value> value = ParseJson(line);
    EXPECT_OK(value.status());
    lines.push_back(*value);
  }
  return lines;
}

// Returns the request of a line, with as many hypotheses as the line has.
inline Request ReferenceRequest(const json::value& line) {
  json::object params = line.at("params").as_object();
  params["num_return_sequences"] = line.at("hypotheses").as_array().size();
  const RequestLine request = ParseRequestLine(WriteJson(
      {{"prompt_tokens", line.at("prompt_tokens")}, {"params", params}}));
  EXPECT_OK(request.body.status());
  return {request.body->prompt_tokens, request.body->params};
}

inline std::vector<TokenId> HypothesisTokens(const json::value& hypothesis) {
  std::vector<TokenId> tokens;
  for (const json::value& token : hypothesis.at("tokens").as_array()) {
    tokens.push_back(token.to_number<TokenId>());
  }
  return tokens;
}

// Returns the lines of tests/data/beam_search.jsonl to test: all; or, with few
// cases, each line that has an option, or a value of one, that no earlier line
// has. Together they cover every value of every option, and a list for every
// option that is one.
inline std::vector<json::value> ReferenceCases() {
  std::vector<json::value> lines =
      ReadReferenceLines(SourcePath("tests/data/beam_search.jsonl"));
  EXPECT_EQ(lines.size(), 300u);
  if (!FewCases()) return lines;
  std::set<std::string> seen;
  std::vector<json::value> few;
  for (json::value& line : lines) {
    bool is_new = false;
    for (const auto& [name, value] : line.at("params").as_object()) {
      const std::string which = value.is_array() ? "" : WriteJson(value);
      is_new |= seen.insert(std::string(name) + which).second;
    }
    if (is_new) few.push_back(std::move(line));
  }
  return few;
}

}  // namespace espalier::testing
