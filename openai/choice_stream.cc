#include "openai/choice_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace espalier::openai {

void ChoiceStream::Add(std::span<const TokenId> tokens, std::string_view text,
                       std::span<const TokenLogProb> log_probs) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  AddText(tokens, text, /*is_end=*/false);
  if (log_probs.size() != tokens.size()) return;
  log_probs_.insert(log_probs_.end(), log_probs.begin(), log_probs.end());
  if (!detokenizer_ && writer_->tokenizer() != nullptr) {
    detokenizer_ = TextBeginOf(*prompt_, *writer_->tokenizer());
  }
  for (const TokenId token : tokens) {
    text_offsets_.push_back(num_characters_);
    if (!detokenizer_) continue;
    std::string piece;
    detokenizer_->Feed(token, &piece);
    num_characters_ += CountCharacters(piece);
  }
}

void ChoiceStream::AddText(std::span<const TokenId> tokens,
                           std::string_view text, bool is_end) {
  if (!tool_calls_) {
    text_ += text;
    return;
  }
  num_bytes_written_ += text.size();
  num_characters_written_ += CountCharacters(text);
  ToolCallText found;
  tool_calls_->Feed(tokens, text, &found);
  if (is_end) tool_calls_->Finish(&found);
  writer_->DropUnwanted(&found);
  text_ += found.content;
  has_tool_calls_ |= !found.calls.empty();
  std::ranges::move(found.calls, std::back_inserter(tool_call_parts_));
}

bool ChoiceStream::has_news() const {
  if (!tool_call_parts_.empty()) return true;
  if (writer_->shows_text() && !text_.empty()) return true;
  return writer_->shows_tokens() && num_tokens_written_ < tokens_.size();
}

// If the text may still be cut, the tokens after the cut begin at or after the
// last written character.
std::vector<PlacedLogProb> ChoiceStream::ReadyLogProbs() const {
  std::vector<PlacedLogProb> ready;
  for (size_t i = 0; i < log_probs_.size(); ++i) {
    if (text_offsets_[i] > num_characters_written_) break;
    ready.push_back({log_probs_[i].token, &log_probs_[i], text_offsets_[i]});
  }
  return ready;
}

void ChoiceStream::AppendNews(std::string* out) {
  const std::string text = std::exchange(text_, {});
  if (!tool_calls_) {
    num_bytes_written_ += text.size();
    num_characters_written_ += CountCharacters(text);
  }
  const std::vector<ToolCallPart> tool_calls =
      std::exchange(tool_call_parts_, {});
  const size_t begin = std::exchange(num_tokens_written_, tokens_.size());
  std::vector<PlacedLogProb> log_probs = ReadyLogProbs();
  const auto num_ready = std::ssize(log_probs);
  writer_->AppendDelta({.index = index_,
                        .text = text,
                        .tool_calls = tool_calls,
                        .tokens = std::span(tokens_).subspan(begin),
                        .log_probs = std::move(log_probs)},
                       out);
  num_log_probs_written_ += num_ready;
  log_probs_.erase(log_probs_.begin(), log_probs_.begin() + num_ready);
  text_offsets_.erase(text_offsets_.begin(), text_offsets_.begin() + num_ready);
}

void ChoiceStream::AppendEnd(const Result& result, const Hypothesis& hypothesis,
                             std::string_view own_text, std::string_view text,
                             std::string* out) {
  const std::span<const TokenId> tokens = hypothesis.tokens;
  std::vector<PlacedLogProb> log_probs =
      writer_->LogProbsOf(*prompt_, result, hypothesis, own_text);
  log_probs.erase(
      log_probs.begin(),
      log_probs.begin() + std::min(num_log_probs_written_, log_probs.size()));
  text = text.substr(std::min(num_bytes_written_, text.size()));
  if (tool_calls_) {
    AddText(tokens.subspan(std::min(tokens_.size(), tokens.size())), text,
            /*is_end=*/true);
    text = text_;
  }
  writer_->AppendDelta(
      {.index = index_,
       .text = text,
       .tool_calls = tool_call_parts_,
       .has_tool_calls = has_tool_calls_,
       .tokens =
           writer_->prompt_only()
               ? std::span<const TokenId>()
               : tokens.subspan(std::min(num_tokens_written_, tokens.size())),
       .log_probs = std::move(log_probs),
       .end = &hypothesis,
       .prompt = prompt_},
      out);
}

}  // namespace espalier::openai
