#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <new>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/regex_syntax.h"

namespace espalier {
namespace {

constexpr size_t kFirstStackBytes = size_t{32} << 10;
constexpr size_t kMostStackBytes = size_t{1} << 20;
constexpr uint32_t kMaxHeapKibibytes = 16 << 10;

// What a thread needs to search, whatever the pattern.
class RegexScratch {
 public:
  RegexScratch()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes,
                                      nullptr)) {
    if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
    pcre2_set_match_limit(context_, Regex::kMaxSteps);
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

 private:
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

absl::Status SearchError(int code, size_t begin) {
  if (code == PCRE2_ERROR_MATCHLIMIT) {
    return InvalidArgument("a match from byte ", begin,
                           " of the text on takes more than ", Regex::kMaxSteps,
                           " steps");
  }
  return InvalidArgument("the search from byte ", begin,
                         " of the text on fails: ", ErrorText(code));
}

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

Regex::Regex(pcre2_real_code_8* code)
    : code_(code), is_jit_(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0) {}

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
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code =
      pcre2_compile(Units(rewritten), rewritten.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    // The offset is one into what the pattern was rewritten to.
    const std::string place =
        rewritten == pattern ? Concat(", byte ", offset) : "";
    return InvalidArgument("pattern ", ShownInQuotes(pattern), place, ": ",
                           ErrorText(error));
  }
  return Regex(code);
}

bool Regex::Find(std::string_view text, size_t begin, Match* match,
                 absl::Status* error) const {
  RegexScratch& scratch = ScratchOfThread();
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK;
  const int rc =
      is_jit_ ? pcre2_jit_match(code_.get(), Units(text), text.size(), begin,
                                kOptions, scratch.data(), scratch.context())
              : pcre2_match(code_.get(), Units(text), text.size(), begin,
                            kOptions, scratch.data(), scratch.context());
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    *error = SearchError(rc, begin);
    return false;
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data());
  *match = {bounds[0], bounds[1]};
  return true;
}

size_t Regex::NextCharacter(std::string_view text, size_t begin) {
  do {
    ++begin;
  } while (begin < text.size() &&
           (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
  return begin;
}

}  // namespace espalier
