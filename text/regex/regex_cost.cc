#include "text/regex/regex_cost.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/status.h"

namespace espalier {
namespace {

// Steps of one beginning of a match that need not be counted.
constexpr int64_t kMaxFreeSteps = 1024;
constexpr int64_t kCalloutSteps = 8;
constexpr int64_t kManySteps = 1'000'000'000;
constexpr int kMaxCallouts = 254;
// A repetition that may go further than this beyond its least has no end.
constexpr int64_t kMaxFreeRepeats = 8;
constexpr int64_t kNoEnd = INT64_MAX;

// Cost to try an item in every way, and the number of ways in which it matches.
struct Ways {
  int64_t steps = 0;
  int64_t num = 1;

  // Followed by `next`, which each way tries.
  void Then(const Ways& next) {
    steps = std::min(kManySteps, steps + num * next.steps);
    num = std::min(kManySteps, num * next.num);
  }
  void Or(const Ways& other) {
    steps = std::min(kManySteps, steps + other.steps);
    num = std::min(kManySteps, num + other.num);
  }
};

struct Repeats {
  int64_t least = 1;
  int64_t most = 1;
};

class PatternCounter {
 public:
  explicit PatternCounter(std::string_view pattern) : pattern_(pattern) {
    groups_.emplace_back();
  }

  CountedPattern Count() {
    while (at_ < pattern_.size()) CountOne();
    EndAlternative();
    const int64_t all = groups_.front().alternatives.steps;
    if (all > kMaxFreeSteps || callouts_.size() > kMaxCallouts) {
      cost_.counts_all = true;
    }
    return cost_.counts_all ? CountAll() : CountRepetitions(all);
  }

 private:
  struct Group {
    Ways alternatives{0, 0};  // those that have ended
    Ways ways;                // ways of the current alternative
    bool has_repetition = false;
    // Callouts before this one stay: what follows them may fail.
    size_t num_kept = 0;
    size_t num_before = 0;  // callouts before this alternative
  };
  struct Callout {
    size_t offset;  // in the pattern
    Ways before;
    int64_t steps_per_byte;
    std::optional<int64_t> steps_after;  // nothing: those of the pattern
  };

  CountedPattern CountAll() {
    cost_.steps_per_item += 2 * kCalloutSteps;
    return {std::string(pattern_), std::move(cost_)};
  }

  CountedPattern CountRepetitions(int64_t all) {
    CountedPattern counted;
    size_t copied = 0;
    for (const Callout& callout : callouts_) {
      counted.pattern += pattern_.substr(copied, callout.offset - copied);
      copied = callout.offset;
      counted.cost.repetitions.push_back(
          {callout.steps_per_byte,
           kCalloutSteps + callout.steps_after.value_or(all)});
      counted.pattern += Concat("(?C", counted.cost.repetitions.size(), ")");
    }
    counted.pattern += pattern_.substr(copied);
    return counted;
  }

  bool is_outermost() const { return groups_.size() == 1; }

  void CountOne() {
    switch (pattern_[at_]) {
      case '(':
        return OpenGroup();
      case ')':
        return CloseGroup();
      case '|':
        ++at_;
        return EndAlternative();
      default:
        const size_t begin = at_;
        SkipCharacter();
        const auto length = static_cast<int64_t>(at_ - begin);
        return AddCharacter(1 + length / 16);
    }
  }

  // Past a character, an escape or a class.
  void SkipCharacter() {
    const char c = pattern_[at_];
    if (c == '\\') return SkipEscape();
    ++at_;
    if (c != '[') {
      // The other bytes of a character of UTF-8.
      while (at_ < pattern_.size() && (pattern_[at_] & 0xC0) == 0x80) ++at_;
      return;
    }
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        SkipEscape();
      } else {
        ++at_;
      }
    }
    at_ = std::min(at_ + 1, pattern_.size());
  }

  void SkipEscape() {
    const bool has_braces =
        pattern_.substr(at_).size() > 2 &&
        (pattern_[at_ + 1] == 'x' || pattern_[at_ + 1] == 'p' ||
         pattern_[at_ + 1] == 'P') &&
        pattern_[at_ + 2] == '{';
    const size_t end = has_braces ? pattern_.find('}', at_) : at_ + 1;
    at_ = std::min(end, pattern_.size() - 1) + 1;
    // \x0a
    if (!has_braces && pattern_[at_ - 1] == 'x') {
      at_ = std::min(at_ + 2, pattern_.size());
    }
  }

  void OpenGroup() {
    ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == '?') {
      at_ = pattern_.find_first_of(":=!>)", at_);
      at_ = at_ == std::string_view::npos ? pattern_.size() : at_ + 1;
      if (pattern_[at_ - 1] == ')') return;  // (?i)
    }
    Group group;
    group.num_before = group.num_kept = callouts_.size();
    groups_.push_back(group);
  }

  void EndAlternative() {
    Group& group = groups_.back();
    if (is_outermost()) {
      callouts_.resize(group.num_kept);
      for (size_t i = group.num_before; i < callouts_.size(); ++i) {
        Callout& callout = callouts_[i];
        if (callout.steps_after) {
          callout.steps_after =
              (group.ways.steps - callout.before.steps) / callout.before.num;
        }
      }
    }
    group.alternatives.Or(group.ways);
    group.ways = {};
    group.num_before = group.num_kept = callouts_.size();
  }

  void CloseGroup() {
    ++at_;
    if (is_outermost()) return;  // wrong
    EndAlternative();
    const Group group = groups_.back();
    groups_.pop_back();
    const Repeats repeats = TakeRepeats();
    // The cost of a repeated group with such repetitions is unbounded.
    const bool is_once = repeats.least == 1 && repeats.most == 1;
    if (!is_once && (group.has_repetition || repeats.most > kMaxFreeRepeats)) {
      cost_.counts_all = true;
    }
    groups_.back().has_repetition |= group.has_repetition;
    if (repeats.least > 0 || group.has_repetition) KeepCallouts();
    Add(group.alternatives, repeats);
  }

  // Adds an item that matches one character.
  void AddCharacter(int64_t steps) {
    const Repeats repeats = TakeRepeats();
    cost_.steps_per_byte = std::max(cost_.steps_per_byte, steps);
    cost_.steps_per_item = std::max(
        cost_.steps_per_item,
        std::min(kManySteps, steps * std::max<int64_t>(1, repeats.least)));
    if (repeats.least > 0) KeepCallouts();
    if (repeats.most - repeats.least <= kMaxFreeRepeats) {
      return Add({steps, 1}, repeats);
    }
    Group& group = groups_.back();
    group.ways.Then({std::min(kManySteps, steps * (repeats.least + 1)), 1});
    group.has_repetition = true;
    callouts_.push_back(
        {at_, group.ways, steps,
         is_outermost() ? std::optional<int64_t>(0) : std::nullopt});
    if (!is_outermost()) KeepCallouts();
  }

  void KeepCallouts() { groups_.back().num_kept = callouts_.size(); }

  void Add(const Ways& item, Repeats repeats) {
    Ways all{0, 0}, times;
    for (int64_t i = 0; i <= repeats.most; ++i) {
      if (times.steps > kMaxFreeSteps) {
        cost_.counts_all = true;
        return;
      }
      if (i >= repeats.least)
        all.num = std::min(kManySteps, all.num + times.num);
      if (i < repeats.most) times.Then(item);
    }
    groups_.back().ways.Then({times.steps, std::max<int64_t>(1, all.num)});
  }

  // The quantifier that follows, if there is one, with its ? or +.
  Repeats TakeRepeats() {
    Repeats repeats;
    if (at_ == pattern_.size()) return repeats;
    switch (pattern_[at_]) {
      case '*':
        repeats = {0, kNoEnd};
        break;
      case '+':
        repeats = {1, kNoEnd};
        break;
      case '?':
        repeats = {0, 1};
        break;
      case '{':
        repeats = ReadInterval();
        break;
      default:
        return repeats;
    }
    ++at_;
    if (at_ < pattern_.size() &&
        (pattern_[at_] == '?' || pattern_[at_] == '+')) {
      ++at_;
    }
    return repeats;
  }

  // Up to its }.
  Repeats ReadInterval() {
    const size_t end = std::min(pattern_.find('}', at_), pattern_.size() - 1);
    const char* const last = pattern_.data() + end;
    Repeats repeats{kManySteps, kNoEnd};
    const auto least =
        std::from_chars(pattern_.data() + at_ + 1, last, repeats.least);
    repeats.most = repeats.least;
    if (least.ptr < last && *least.ptr == ',') {
      repeats.most = kNoEnd;
      std::from_chars(least.ptr + 1, last, repeats.most);
    }
    repeats.least = std::min(repeats.least, kManySteps);
    at_ = end;
    return repeats;
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  std::vector<Group> groups_;
  std::vector<Callout> callouts_;
  RegexCost cost_;
};

}  // namespace

CountedPattern CountPattern(std::string_view pattern) {
  return PatternCounter(pattern).Count();
}

}  // namespace espalier
