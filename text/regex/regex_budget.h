// RegexBudget: how many steps the regular expressions of a tokenizer.json may
// take for a text, all matches of all of them together, so that the work is
// proportional to the text whatever the patterns are (text/regex/regex_cost.h
// says what a step is). Steps are counted: the same text and file always end
// alike.
//
// Thread safety: none; one call's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier {

class RegexBudget {
 public:
  // About a microsecond a byte. The patterns of GPT-2, Llama 3, Qwen, o200k and
  // DeepSeek take up to 40.
  static constexpr int64_t kStepsPerByte = 1000;
  static constexpr int64_t kSteps = 1'000'000;

  explicit RegexBudget(size_t text_bytes)
      : text_bytes_(text_bytes),
        left_(limit_of(static_cast<int64_t>(text_bytes))) {}

  // Takes `steps` and returns true if that many are left; otherwise none are
  // left.
  bool Take(int64_t steps) {
    left_ = steps > left_ ? -1 : left_ - steps;
    return left_ >= 0;
  }

  size_t text_bytes() const { return text_bytes_; }
  int64_t limit() const { return limit_of(static_cast<int64_t>(text_bytes_)); }
  int64_t taken() const { return limit() - left_; }

 private:
  static int64_t limit_of(int64_t text_bytes) {
    return kSteps + kStepsPerByte * text_bytes;
  }

  size_t text_bytes_;
  int64_t left_;  // -1 once there were too few
};

}  // namespace espalier
