// The "behavior" of a split in tokenizer.json, which decides where its matches
// go, and SpanSplitter, which applies it.
//
// "The-final--countdown" at "-":
//   Removed             The final countdown
//   Isolated            The - final - - countdown
//   MergedWithPrevious  The- final- - countdown
//   MergedWithNext      The -final - -countdown
//   Contiguous          The - final -- countdown
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/pipeline/pre_tokenizer.h"

namespace espalier {

enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

std::optional<SplitBehavior> SplitBehaviorOf(std::string_view name);

// Takes the matches in a piece, from the left, and gives the spans that the
// piece is split into.
class SpanSplitter {
 public:
  // Appends to `spans`. With `is_inverted` what lies between matches counts as
  // the matches.
  SpanSplitter(SplitBehavior behavior, bool is_inverted,
               std::vector<PreTokenizer::Span>* spans)
      : behavior_(behavior), is_inverted_(is_inverted), spans_(*spans) {}

  void Begin(uint32_t begin) {
    first_ = spans_.size();
    done_ = begin;
    was_match_ = false;
  }
  void AddMatch(uint32_t begin, uint32_t end) {
    if (begin != done_) Add({done_, begin}, is_inverted_);
    Add({begin, end}, !is_inverted_);
    done_ = end;
  }
  void End(uint32_t end) {
    if (end != done_) Add({done_, end}, is_inverted_);
    DropEmpty();
  }

 private:
  void Add(PreTokenizer::Span span, bool is_match) {
    if (behavior_ == SplitBehavior::kIsolated) {
      spans_.push_back(span);
    } else {
      AddMerged(span, is_match);
    }
  }
  void AddMerged(PreTokenizer::Span span, bool is_match);
  void DropEmpty();

  const SplitBehavior behavior_;
  const bool is_inverted_;
  std::vector<PreTokenizer::Span>& spans_;
  size_t first_ = 0;  // start of this piece in spans_
  uint32_t done_ = 0;
  bool was_match_ = false;  // the last span was a match
};

}  // namespace espalier
