#include "tests/constrain/grammar_oracle.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace espalier::testing {
namespace {

using Ends = std::set<size_t>;

class RuleMatches {
 public:
  RuleMatches(const Grammar& grammar, std::string_view text)
      : grammar_(grammar), text_(text), ends_(grammar.rules.size()) {
    for (auto& of_rule : ends_) of_rule.resize(text.size() + 1);
    for (bool grows = true; grows;) {
      grows = false;
      for (size_t rule = 0; rule < ends_.size(); ++rule) {
        for (size_t at = 0; at <= text.size(); ++at) {
          Ends now = After(grammar.rules[rule].body, at);
          if (now == ends_[rule][at]) continue;
          grows = true;
          ends_[rule][at] = std::move(now);
        }
      }
    }
  }

  bool Has() const { return ends_[grammar_.root][0].contains(text_.size()); }

 private:
  using Kind = GrammarNode::Kind;

  Ends After(const GrammarNode& node, const Ends& from) const {
    Ends ends;
    for (const size_t at : from) {
      const Ends after = After(node, at);
      ends.insert(after.begin(), after.end());
    }
    return ends;
  }

  Ends After(const GrammarNode& node, size_t at) const {
    Ends ends;
    switch (node.kind) {
      case Kind::kText:
        if (text_.substr(at).starts_with(node.text)) {
          ends.insert(at + node.text.size());
        }
        return ends;
      case Kind::kSet:
        if (at == text_.size()) return ends;
        for (const auto& [first, last] : node.set.ranges()) {
          const auto c = static_cast<char32_t>(text_[at]);
          if (c >= first && c <= last) ends.insert(at + 1);
        }
        return ends;
      case Kind::kRule:
        return ends_[node.rule][at];
      case Kind::kSequence:
        ends.insert(at);
        for (const GrammarNode& child : node.children) {
          ends = After(child, ends);
        }
        return ends;
      case Kind::kChoice:
        for (const GrammarNode& child : node.children)
          ends.merge(After(child, at));
        return ends;
      case Kind::kRepeat:
        return AfterRepeat(node, at);
    }
    return ends;
  }

  Ends AfterRepeat(const GrammarNode& node, size_t at) const {
    const GrammarNode& child = node.children.front();
    Ends from = {at};
    for (int i = 0; i < node.min_count; ++i) from = After(child, from);
    Ends all = from;
    // Longer ones have empty texts.
    const int most = node.max_count == GrammarNode::kUnbounded
                         ? static_cast<int>(text_.size()) + 1
                         : node.max_count - node.min_count;
    for (int i = 0; i < most; ++i) {
      from = After(child, from);
      all.insert(from.begin(), from.end());
    }
    return all;
  }

  const Grammar& grammar_;
  const std::string_view text_;
  // [rules][text.size() + 1]  Ends of texts of a rule from a place.
  std::vector<std::vector<Ends>> ends_;
};

}  // namespace

GrammarOracle::GrammarOracle(std::string_view grammar) {
  CompileBudget budget;
  absl::StatusOr<Grammar> parsed = ParseGbnf(grammar, &budget);
  CHECK(parsed.ok()) << parsed.status();
  grammar_ = *std::move(parsed);
}

bool GrammarOracle::Has(std::string_view text) const {
  return RuleMatches(grammar_, text).Has();
}

std::set<std::string> GrammarOracle::Texts(
    const std::vector<std::string>& texts) const {
  std::set<std::string> found;
  for (const std::string& text : texts) {
    if (Has(text)) found.insert(text);
  }
  return found;
}

}  // namespace espalier::testing
