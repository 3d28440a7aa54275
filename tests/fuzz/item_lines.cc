// Catalogues of items: lines are read or refused, and each item of a catalogue
// is found again by the line that it is written as.
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "constrain/item_catalogue.h"
#include "request/read_items.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {
namespace {

constexpr int kNumTokens = 6000;

// Appends the line of each item from a node on.
void AppendLines(const ItemCatalogue& items, ItemCatalogue::Node node,
                 json::array* tokens, std::string* lines) {
  if (items.is_end(node)) *lines += WriteJson(*tokens) + "\n";
  const ItemCatalogue::Range children = items.Children(node);
  for (auto child = children.begin; child < children.end; ++child) {
    tokens->push_back(items.token(child));
    AppendLines(items, child, tokens, lines);
    tokens->pop_back();
  }
}

}  // namespace

FUZZ_TARGET(item_lines, input) {
  const auto items =
      ReadItems(input, /*tokenizer=*/nullptr, kNumTokens, /*end_ids=*/{});
  if (!items.ok()) {
    CheckBadInput(items.status());
    return;
  }
  json::array tokens;
  std::string lines;
  AppendLines(**items, ItemCatalogue::kRoot, &tokens, &lines);
  const auto again =
      ReadItems(lines, /*tokenizer=*/nullptr, kNumTokens, /*end_ids=*/{});
  CHECK(again.ok()) << lines;
  CHECK((*again)->num_items() == (*items)->num_items()) << lines;
  CHECK((*again)->num_nodes() == (*items)->num_nodes()) << lines;
}

}  // namespace espalier::fuzz
