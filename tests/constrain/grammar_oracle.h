// GrammarOracle: the texts of a grammar, by its definition.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/gbnf_parser.h"

namespace espalier::testing {

class GrammarOracle {
 public:
  explicit GrammarOracle(std::string_view grammar);

  // True if `text`, of ASCII, is in the language. Any nesting, and any left
  // recursion: what each rule may match from each place grows until it does
  // not.
  bool Has(std::string_view text) const;
  // Returns the texts of the language among `texts`.
  std::set<std::string> Texts(const std::vector<std::string>& texts) const;

 private:
  Grammar grammar_;
};

}  // namespace espalier::testing
