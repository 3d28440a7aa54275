#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex/regex.h"

#include <pcre2.h>

#include <limits>
#include <new>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/regex/regex_syntax.h"

namespace espalier {
namespace {

constexpr size_t kFirstStackBytes = size_t{32} << 10;
constexpr size_t kMostStackBytes = size_t{1} << 20;
constexpr uint32_t kMaxHeapKibibytes = 16 << 10;

// Takes the steps of a search from a budget, at PCRE2's callouts.
class RegexMeter {
 public:
  void Begin(const RegexCost* cost, RegexBudget* budget, size_t begin) {
    cost_ = cost;
    budget_ = budget;
    last_ = begin;
    last_number_ = 0;
  }

  // PCRE2's callout; a result other than 0 ends the search with that error.
  static int OnCallout(pcre2_callout_block* block, void* meter) {
    return static_cast<RegexMeter*>(meter)->Take(*block) ? 0
                                                         : PCRE2_ERROR_CALLOUT;
  }

 private:
  bool Take(const pcre2_callout_block& block) {
    const size_t at = block.current_position;
    const size_t moved = at > last_ ? at - last_ : last_ - at;
    last_ = at;
    if (cost_->counts_all) {
      return budget_->Take(cost_->steps_per_item +
                           cost_->steps_per_byte * static_cast<int64_t>(moved));
    }
    // One and the same repetition goes back or on from where it was; another
    // may have gone all the way from where the match begins.
    const bool is_same = block.callout_number == last_number_ &&
                         block.start_match == start_ && moved > 0;
    last_number_ = block.callout_number;
    start_ = block.start_match;
    const RegexCost::Repetition& repetition =
        cost_->repetitions[block.callout_number - 1];
    const size_t num_bytes = is_same ? moved : at - start_;
    return budget_->Take(repetition.steps_after +
                         repetition.steps_per_byte *
                             static_cast<int64_t>(num_bytes));
  }

  const RegexCost* cost_ = nullptr;
  RegexBudget* budget_ = nullptr;
  size_t last_ = 0;
  size_t start_ = 0;
  uint32_t last_number_ = 0;  // 0: there was none
};

// State of a thread's searches, independent of the pattern.
class RegexScratch {
 public:
  RegexScratch()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes,
                                      nullptr)) {
    if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
    // The meter counts better.
    pcre2_set_match_limit(context_, std::numeric_limits<uint32_t>::max());
    pcre2_set_callout(context_, &RegexMeter::OnCallout, &meter_);
    pcre2_set_heap_limit(context_, kMaxHeapKibibytes);
    // Without a JIT stack of its own PCRE2 takes 32 KiB of the thread's.
    if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
  }
  ~RegexScratch() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
    pcre2_match_data_free(data_);
  }
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  pcre2_match_data* data() { return data_; }
  pcre2_match_context* context() { return context_; }
  RegexMeter& meter() { return meter_; }

 private:
  RegexMeter meter_;
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

RegexScratch& ScratchOfThread() {
  thread_local RegexScratch scratch;
  return scratch;
}

std::string ErrorText(int code) {
  char text[256];
  const int length = pcre2_get_error_message(
      code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return length < 0 ? Concat("error ", code) : std::string(text, length);
}

PCRE2_SPTR Units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Regex::Regex(pcre2_real_code_8* code, std::string_view pattern, RegexCost cost)
    : code_(code),
      pattern_(pattern),
      cost_(std::move(cost)),
      is_jit_(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0) {}

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument("a pattern of ", pattern.size(),
                           " bytes, more than ", kMaxPatternBytes);
  }
  ASSIGN_OR_RETURN(const std::string rewritten, OnigurumaToPcre2(pattern));
  return CompileAs(rewritten, pattern);
}

absl::StatusOr<Regex> Regex::CompilePcre2(std::string_view pattern) {
  return CompileAs(pattern, pattern);
}

absl::StatusOr<Regex> Regex::CompileAs(std::string_view rewritten,
                                       std::string_view pattern) {
  CountedPattern counted = CountPattern(rewritten);
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
      (counted.cost.counts_all ? PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE
                               : 0);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code =
      pcre2_compile(Units(counted.pattern), counted.pattern.size(), options,
                    &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    // The offset is one into what the pattern was rewritten to.
    const std::string place =
        counted.pattern == pattern ? Concat(", byte ", offset) : "";
    return InvalidArgument("pattern ", ShownInQuotes(pattern), place, ": ",
                           ErrorText(error));
  }
  return Regex(code, pattern, std::move(counted.cost));
}

bool Regex::Find(std::string_view text, size_t begin, RegexBudget* budget,
                 Match* match, absl::Status* error) const {
  RegexScratch& scratch = ScratchOfThread();
  scratch.meter().Begin(&cost_, budget, begin);
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK;
  const int rc =
      is_jit_ ? pcre2_jit_match(code_.get(), Units(text), text.size(), begin,
                                kOptions, scratch.data(), scratch.context())
              : pcre2_match(code_.get(), Units(text), text.size(), begin,
                            kOptions, scratch.data(), scratch.context());
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    *error = SearchError(rc, begin, *budget);
    return false;
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data());
  *match = {bounds[0], bounds[1]};
  return true;
}

absl::Status Regex::SearchError(int code, size_t begin,
                                const RegexBudget& budget) const {
  const std::string pattern = Concat("pattern ", ShownInQuotes(pattern_));
  if (code == PCRE2_ERROR_CALLOUT) {
    return InvalidArgument(pattern, " takes more than the ", budget.limit(),
                           " steps that a text of ", budget.text_bytes(),
                           " bytes may take, at byte ", begin);
  }
  return InvalidArgument(pattern, ": the search from byte ", begin,
                         " of the text on fails: ", ErrorText(code));
}

size_t Regex::NextCharacter(std::string_view text, size_t begin) {
  do {
    ++begin;
  } while (begin < text.size() &&
           (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
  return begin;
}

}  // namespace espalier
