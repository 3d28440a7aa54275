#include "text/chat/tool_call_stream.h"

#include <algorithm>

namespace espalier {

ToolCallStream::ToolCallStream(const ToolCallOptions& options,
                               const Tokenizer& tokenizer,
                               const IncrementalDetokenizer& detokenizer)
    : parser_(options.format, options.tool_names),
      marks_(detokenizer.shows_special()
                 ? std::vector<ToolCallMark>()
                 : SpecialMarksOf(options.format, tokenizer)),
      detokenizer_(detokenizer) {}

void ToolCallStream::Feed(std::span<const TokenId> tokens,
                          std::string_view text, ToolCallText* out) {
  if (marks_.empty()) return parser_.Feed(text, out);
  for (const TokenId token : tokens) {
    const auto mark = std::ranges::find(marks_, token, &ToolCallMark::token);
    if (mark != marks_.end()) placed_.push_back({num_bytes_, mark->spelling});
    std::string piece;
    detokenizer_.Feed(token, &piece);
    num_bytes_ += piece.size();
  }
  const size_t end = num_bytes_fed_ + text.size();
  while (!placed_.empty() && placed_.front().offset <= end) {
    const size_t size = placed_.front().offset - num_bytes_fed_;
    parser_.Feed(text.substr(0, size), out);
    parser_.Feed(placed_.front().spelling, out);
    text.remove_prefix(size);
    num_bytes_fed_ += size;
    placed_.pop_front();
  }
  parser_.Feed(text, out);
  num_bytes_fed_ = end;
}

}  // namespace espalier
