// ResponseItems: the output of a response, a message and calls of tools, from
// the text of its answer while it grows.
//
//   ResponseItems items(call, prompt, tokenizer);
//   for each event:  for (const auto& delta : items.Add(tokens, text)) ...
//   items.Finish();  // items.items() is the output
//
// An item stands where its first character does; what follows calls and is no
// call belongs to the one message. Without any call there is a message, which
// may be empty.
//
// Law: the items, and the deltas of each joined together, do not depend on how
// tokens and text are divided.
//
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "text/chat/tool_call_stream.h"

namespace espalier::openai {

struct ResponseItem {
  std::optional<size_t> call_idx = {};  // unset: the message
  std::string name = {};                // the function, if it is a call
  std::string text = {};                // or the arguments, JSON
};

class ResponseItems {
 public:
  struct Delta {
    size_t item;
    bool is_new;  // the first one of the item
    std::string text;
  };

  // `call` outlives this.
  ResponseItems(const Call& call, const PromptParts& prompt,
                const Tokenizer* tokenizer);

  // `text` is what became certain with `tokens`: whole characters.
  std::vector<Delta> Add(std::span<const TokenId> tokens,
                         std::string_view text);
  // Adds what waited for text that does not come.
  std::vector<Delta> Finish();

  std::span<const ResponseItem> items() const { return items_; }
  // The item that the latest text belongs to.
  size_t last() const { return last_; }
  bool has_calls() const;

 private:
  void AddFound(ToolCallText found, std::vector<Delta>* deltas);
  void AddText(std::optional<size_t> call_idx, std::string name,
               std::string_view text, std::vector<Delta>* deltas);

  const Call& call_;
  std::optional<ToolCallStream> tool_calls_;  // unset: the call has no tools
  std::vector<ResponseItem> items_;
  size_t last_ = 0;
};

}  // namespace espalier::openai
