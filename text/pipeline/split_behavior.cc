#include "text/pipeline/split_behavior.h"

#include <algorithm>
#include <utility>

namespace espalier {

std::optional<SplitBehavior> SplitBehaviorOf(std::string_view name) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return std::nullopt;
}

void SpanSplitter::AddMerged(PreTokenizer::Span span, bool is_match) {
  bool joins = false;
  switch (behavior_) {
    case SplitBehavior::kRemoved:
      if (is_match) return;
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      joins = is_match && !was_match_;
      break;
    case SplitBehavior::kMergedWithNext:
      joins = !is_match && was_match_;
      break;
    case SplitBehavior::kContiguous:
      joins = is_match == was_match_;
      break;
  }
  was_match_ = is_match;
  if (joins && spans_.size() > first_) {
    spans_.back().end = span.end;
  } else {
    spans_.push_back(span);
  }
}

void SpanSplitter::DropEmpty() {
  const auto rest = std::remove_if(
      spans_.begin() + static_cast<std::ptrdiff_t>(first_), spans_.end(),
      [](const PreTokenizer::Span& span) { return span.begin == span.end; });
  spans_.erase(rest, spans_.end());
}

}  // namespace espalier
