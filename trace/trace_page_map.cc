#include "trace/trace_page_map.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr double kMargin = 6;
constexpr double kRowHeight = 15;
// With more rows than this, rows are thin and have no labels.
constexpr int kMaxTallRows = 96;
constexpr double kThinRowHeight = 4;

// Returns the number of the request's sequences, rows of drafts included, that
// hold each page.
std::map<PageId, int> Holders(const TracePages& pages) {
  std::map<PageId, int> holders;
  for (const PageId page : pages.shared) {
    holders[page] += static_cast<int>(pages.slots.size() + pages.drafts.size());
  }
  for (const std::vector<PageId>& draft : pages.drafts) {
    for (const PageId page : draft) ++holders[page];
  }
  for (const TraceSlotPages& slot : pages.slots) {
    for (const PageId page : slot.pages) ++holders[page];
  }
  return holders;
}

// Rows in the order in which the request acquired its pages, then by page id.
class Rows {
 public:
  int Of(PageId page) {
    return rows_.try_emplace(page, static_cast<int>(rows_.size()))
        .first->second;
  }
  const std::map<PageId, int>& all() const { return rows_; }
  int count() const { return static_cast<int>(rows_.size()); }

 private:
  std::map<PageId, int> rows_;
};

Rows AllRows(const TraceTree& tree) {
  Rows rows;
  for (const TracePages& pages : tree.pages) {
    for (const auto& [page, count] : Holders(pages)) rows.Of(page);
  }
  return rows;
}

// Returns the strength of a cell's colour, for 1 to `max_holders` holders.
double Strength(int holders, int max_holders) {
  constexpr double kWeakest = 0.16;
  constexpr double kStrongest = 0.85;
  if (max_holders <= 1) return kWeakest;
  return kWeakest + (kStrongest - kWeakest) * (holders - 1) / (max_holders - 1);
}

// Returns the CSS class of a page's origin: " cached" for the prefix tree,
// " copied" for a copy, "" if the request filled it.
std::string_view OriginClass(const TracePages& pages, PageId page) {
  const auto is_of_page = [page](const TraceCopy& copy) {
    return copy.to == page;
  };
  if (std::ranges::count(pages.cached, page) > 0) return " cached";
  return std::ranges::any_of(pages.copied, is_of_page) ? " copied" : "";
}

// Returns the cell of a page that `count` sequences hold.
std::string Cell(PageId page, const TracePages& pages, int count,
                 double strength, const TraceLayout& layout, double y,
                 bool tall) {
  const int step = pages.step;
  const double left = layout.columns[step - 1];
  const double width = layout.columns[step] - left;
  const double height = tall ? kRowHeight : kThinRowHeight;
  std::string cell = absl::StrFormat(
      "<g class=\"p%s%s\" data-s=\"%d\" data-p=\"%d\">"
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
      "fill-opacity=\"%.2f\"/>",
      strength > 0.5 ? " strong" : "", std::string(OriginClass(pages, page)),
      step, page.value, left + 0.5, y, width - 1, height - 1, strength);
  if (tall) {
    cell += absl::StrFormat(
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>",
        left + width / 2, y + 11, count);
  }
  return cell + "</g>\n";
}

int MaxHolders(const TraceTree& tree) {
  int most = 0;
  for (const TracePages& pages : tree.pages) {
    for (const auto& [page, count] : Holders(pages)) {
      most = std::max(most, count);
    }
  }
  return most;
}

}  // namespace

PageMap DrawPageMap(const TraceTree& tree, const TraceLayout& layout) {
  const Rows rows = AllRows(tree);
  PageMap map = {.drawing = "",
                 .num_pages = rows.count(),
                 .max_holders = MaxHolders(tree)};
  const bool tall = map.num_pages <= kMaxTallRows;
  const double row_height = tall ? kRowHeight : kThinRowHeight;
  map.height = kMargin + row_height * map.num_pages + kMargin;
  for (const TracePages& pages : tree.pages) {
    if (pages.step > tree.num_steps()) continue;  // it was never answered
    for (const auto& [page, count] : Holders(pages)) {
      map.drawing +=
          Cell(page, pages, count, Strength(count, map.max_holders), layout,
               kMargin + row_height * rows.all().at(page), tall);
    }
  }
  for (const TracePreemption& preemption : tree.preemptions) {
    if (preemption.preempted.step > tree.num_steps()) continue;
    map.drawing += absl::StrFormat(
        "<path class=\"preemption\" data-s=\"%d\" d=\"M%.1f 0V%.1f\"/>\n",
        preemption.preempted.step,
        layout.columns[preemption.preempted.step - 1], map.height);
  }
  if (!tall) return map;
  for (const auto& [page, row] : rows.all()) {
    map.drawing += absl::StrFormat(
        "<text class=\"lane\" x=\"0\" y=\"%.1f\">page %d</text>\n",
        kMargin + row_height * row + 11, page.value);
  }
  return map;
}

}  // namespace espalier
