// Regex: a regular expression over UTF-8, as tokenizer.json files have them,
// run by PCRE2's just-in-time compiler.
//
// Such patterns are written for Oniguruma (syntax Ruby). Constructs with
// another meaning in PCRE2 are rewritten (text/regex/regex_syntax.h), and those
// without an equivalent are refused: a pattern matches the same texts, except
// for characters that one of the two libraries does not know yet. PCRE2 10.42
// has the tables of Unicode 14.
//
// A pattern such as (a+)+b would run for years, and one such as a*b|a takes
// time quadratic in the text. So the steps of all matches are taken from a
// budget (text/regex/regex_budget.h) proportional to the text; exceeding it is
// an error.
//
// Thread safety: constant after Compile; any thread may search.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/regex/regex_budget.h"
#include "text/regex/regex_cost.h"

struct pcre2_real_code_8;

namespace espalier {

class Regex {
 public:
  static constexpr size_t kMaxPatternBytes = 65536;

  struct Match {
    size_t begin;
    size_t end;
  };

  // Compiles a pattern in Oniguruma's syntax.
  // Errors: kInvalidArgument saying what is wrong, or not supported, and where.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // Compiles a pattern in PCRE2's own syntax.
  static absl::StatusOr<Regex> CompilePcre2(std::string_view pattern);

  // Calls on_match(Match) for all non-overlapping matches in `text`, from the
  // left; skips an empty match at the end of the previous one.
  // REQUIRES: well-formed UTF-8.
  // Errors: kInvalidArgument naming the pattern and the limit if the budget has
  // too few steps, or if a match takes too deep a stack.
  template <typename OnMatch>
  absl::Status ForEachMatch(std::string_view text, RegexBudget* budget,
                            const OnMatch& on_match) const {
    size_t begin = 0;
    std::optional<size_t> last_end;
    while (begin <= text.size()) {
      Match match;
      absl::Status error;
      if (!Find(text, begin, budget, &match, &error)) return error;
      if (match.begin == match.end && match.end == last_end) {
        begin = NextCharacter(text, begin);
        continue;
      }
      begin = match.end;
      last_end = match.end;
      on_match(match);
    }
    return absl::OkStatus();
  }

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  Regex(pcre2_real_code_8* code, std::string_view pattern, RegexCost cost);

  // Compiles `rewritten`, in PCRE2's syntax; errors show `pattern`.
  static absl::StatusOr<Regex> CompileAs(std::string_view rewritten,
                                         std::string_view pattern);

  // Finds the first match at `begin` or later. Returns false if there is none,
  // and sets `error` if the search failed.
  bool Find(std::string_view text, size_t begin, RegexBudget* budget,
            Match* match, absl::Status* error) const;
  absl::Status SearchError(int code, size_t begin,
                           const RegexBudget& budget) const;
  static size_t NextCharacter(std::string_view text, size_t begin);

  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string pattern_;  // for errors
  RegexCost cost_;
  bool is_jit_ = false;
};

}  // namespace espalier
