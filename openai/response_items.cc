#include "openai/response_items.h"

#include <algorithm>
#include <utility>

#include "openai/tool_calls.h"

namespace espalier::openai {

ResponseItems::ResponseItems(const Call& call, const PromptParts& prompt,
                             const Tokenizer* tokenizer)
    : call_(call), tool_calls_(ToolCallsOf(call, prompt, tokenizer)) {
  if (!tool_calls_) items_.emplace_back();
}

bool ResponseItems::has_calls() const {
  return std::ranges::any_of(items_, [](const ResponseItem& item) {
    return item.call_idx.has_value();
  });
}

void ResponseItems::AddText(std::optional<size_t> call_idx, std::string name,
                            std::string_view text, std::vector<Delta>* deltas) {
  const auto is_it = [&](size_t idx) {
    return idx < items_.size() && items_[idx].call_idx == call_idx;
  };
  size_t idx = last_;
  if (!is_it(idx)) {
    idx = static_cast<size_t>(
        std::ranges::find(items_, call_idx, &ResponseItem::call_idx) -
        items_.begin());
  }
  const bool is_new = idx == items_.size();
  if (is_new) items_.push_back({call_idx, std::move(name)});
  last_ = idx;
  items_[idx].text += text;
  if (is_new || deltas->empty() || deltas->back().item != idx) {
    deltas->push_back({idx, is_new, std::string(text)});
  } else {
    deltas->back().text += text;
  }
}

void ResponseItems::AddFound(ToolCallText found, std::vector<Delta>* deltas) {
  DropUnwanted(call_, &found);
  if (!found.content.empty()) AddText({}, "", found.content, deltas);
  for (ToolCallPart& part : found.calls) {
    AddText(part.call_idx, std::move(part.name), part.arguments, deltas);
  }
}

std::vector<ResponseItems::Delta> ResponseItems::Add(
    std::span<const TokenId> tokens, std::string_view text) {
  std::vector<Delta> deltas;
  if (!tool_calls_) {
    if (!text.empty()) AddText({}, "", text, &deltas);
    return deltas;
  }
  // One byte at a time, which tells whether text or a call comes first.
  size_t begin = 0;
  do {
    ToolCallText found;
    tool_calls_->Feed(tokens, text.substr(begin, 1), &found);
    AddFound(std::move(found), &deltas);
    tokens = {};
  } while (++begin < text.size());
  return deltas;
}

std::vector<ResponseItems::Delta> ResponseItems::Finish() {
  std::vector<Delta> deltas;
  if (tool_calls_) {
    ToolCallText found;
    tool_calls_->Finish(&found);
    AddFound(std::move(found), &deltas);
  }
  if (items_.empty()) AddText({}, "", "", &deltas);
  return deltas;
}

}  // namespace espalier::openai
