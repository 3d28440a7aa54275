#include "examples/cli/trace_page_map.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace espalier::cli {
namespace {

constexpr double kTop = 6;
constexpr double kRowHeight = 15;
// With more rows than this they are thinner, and without words.
constexpr int kMaxTallRows = 96;
constexpr double kThinRowHeight = 4;

// How many of a request's sequences hold each of its pages.
std::map<PageId, int> Holders(const TracePages& pages) {
  std::map<PageId, int> holders;
  for (const PageId page : pages.shared) {
    holders[page] += static_cast<int>(pages.slots.size());
  }
  for (const TraceSlotPages& slot : pages.slots) {
    for (const PageId page : slot.pages) ++holders[page];
  }
  return holders;
}

// Rows in the order in which pages came to the request; by id, where several
// came at once.
class Rows {
 public:
  int Of(PageId page) {
    return rows_.try_emplace(page, static_cast<int>(rows_.size()))
        .first->second;
  }
  const std::unordered_map<PageId, int>& all() const { return rows_; }
  int count() const { return static_cast<int>(rows_.size()); }

 private:
  std::unordered_map<PageId, int> rows_;
};

Rows AllRows(const TraceTree& tree) {
  Rows rows;
  for (const TracePages& pages : tree.pages) {
    for (const auto& [page, count] : Holders(pages)) rows.Of(page);
  }
  return rows;
}

// Strength of a cell's colour, of one to the most holders.
double Strength(int holders, int max_holders) {
  constexpr double kWeakest = 0.16;
  constexpr double kStrongest = 0.85;
  if (max_holders <= 1) return kWeakest;
  return kWeakest + (kStrongest - kWeakest) * (holders - 1) / (max_holders - 1);
}

}  // namespace

PageMap DrawPageMap(const TraceTree& tree, const TraceLayout& layout) {
  PageMap map;
  Rows rows = AllRows(tree);
  map.num_pages = rows.count();
  const bool tall = map.num_pages <= kMaxTallRows;
  const double row_height = tall ? kRowHeight : kThinRowHeight;
  map.height = kTop + row_height * map.num_pages + kTop;
  std::vector<std::map<PageId, int>> holders;
  for (const TracePages& pages : tree.pages) {
    holders.push_back(Holders(pages));
    for (const auto& [page, count] : holders.back()) {
      map.max_holders = std::max(map.max_holders, count);
    }
  }
  for (size_t i = 0; i < tree.pages.size(); ++i) {
    const int step = tree.pages[i].step;
    if (step > tree.num_steps()) continue;  // it was never answered
    const double left = layout.columns[step - 1];
    const double width = layout.columns[step] - left;
    for (const auto& [page, count] : holders[i]) {
      const double strength = Strength(count, map.max_holders);
      const double y = kTop + row_height * rows.Of(page);
      map.drawing += absl::StrFormat(
          "<g class=\"p%s\" data-s=\"%d\" data-p=\"%d\">"
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
          "fill-opacity=\"%.2f\"/>",
          strength > 0.5 ? " strong" : "", step, page.value, left + 0.5, y,
          width - 1, row_height - 1, strength);
      if (tall) {
        map.drawing += absl::StrFormat(
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>",
            left + width / 2, y + 11, count);
      }
      map.drawing += "</g>\n";
    }
  }
  if (!tall) return map;
  for (const auto& [page, row] : rows.all()) {
    map.drawing += absl::StrFormat(
        "<text class=\"lane\" x=\"0\" y=\"%.1f\">page %d</text>\n",
        kTop + row_height * row + 11, page.value);
  }
  return map;
}

}  // namespace espalier::cli
