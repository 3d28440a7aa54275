// ToolCallStream: the content and the calls of tools of one sample or beam,
// from its tokens and the text that is certain of them. Marks of calls that are
// special tokens are put back where their tokens stand, unless the text shows
// special tokens.
//
//   ToolCallStream stream(options);
//   for each event:  stream.Feed(event.tokens, event.text, &found);
//   stream.Finish(&found);
//
// Law: as of ToolCallParser, whatever the events are.
//
// Thread safety: none of its own; the tokenizer may be shared.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/chat/tool_call_format.h"
#include "text/chat/tool_call_parser.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct ToolCallOptions {
  ToolCallFormat format = ToolCallFormat::kNone;
  std::vector<std::string> tool_names = {};
};

class ToolCallStream {
 public:
  // At the beginning of a text: `detokenizer` has read no token yet.
  // `tokenizer` outlives this.
  ToolCallStream(const ToolCallOptions& options, const Tokenizer& tokenizer,
                 const IncrementalDetokenizer& detokenizer);

  // `text` is what became certain with `tokens`, and may stay behind them.
  // Adds to `*out`.
  void Feed(std::span<const TokenId> tokens, std::string_view text,
            ToolCallText* out);
  void Finish(ToolCallText* out) { parser_.Finish(out); }

 private:
  struct PlacedMark {
    size_t offset;  // in the text
    std::string_view spelling;
  };

  ToolCallParser parser_;
  const std::vector<ToolCallMark> marks_;
  IncrementalDetokenizer detokenizer_;
  size_t num_bytes_ = 0;      // that all tokens spell
  size_t num_bytes_fed_ = 0;  // to the parser, without marks
  std::deque<PlacedMark> placed_;
};

}  // namespace espalier
