// AnswerWriter: a whole answer (openai/answer.h), piece by piece, so that one
// of any length takes little memory, and little time at once.
//
//   AnswerWriter writer(call, head, prompts, answers, tokenizer);
//   std::string piece;
//   for (bool goes_on = true; goes_on; piece.clear()) {
//     goes_on = writer.Append(size_t{64} << 10, &piece);
//     Send(piece);
//   }
//
// Invariant: the concatenated pieces equal the text that WriteAnswer returns.
//
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/choice.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

class AnswerWriter {
 public:
  // All of them outlive this; `tokenizer` may be null.
  AnswerWriter(const Call& call, const AnswerHead& head,
               std::span<const PromptParts> prompts,
               std::span<const PromptAnswer> answers,
               const Tokenizer* tokenizer);
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  // Appends the next `num_bytes`, or the rest if it is shorter. May exceed that
  // by a few log-probabilities or one text. Returns false once all is written.
  bool Append(size_t num_bytes, std::string* out);

 private:
  // A choice with what its part refers to.
  struct Choice {
    std::string text;
    ToolCallText found;
    ChoicePart part;
  };
  using Part = std::function<void(std::string*)>;
  using AppendItem = std::function<void(size_t item, std::string*)>;

  // Adds the parts that come next; false if there are none.
  bool AddParts();
  void AddChoice(const PromptParts& prompt, const PromptAnswer& answer,
                 int64_t first_index, size_t choice_idx);
  void AddLogProbs(const std::shared_ptr<const ChoicePart>& part);
  void AddPromptLogProbs(const Result& result);
  void AddEnd();
  // Parts that append `begin`, so many items and "]".
  void AddList(std::string begin, size_t num_items, const AppendItem& append);

  const Call& call_;
  const AnswerHead& head_;
  const std::span<const PromptParts> prompts_;
  const std::span<const PromptAnswer> answers_;
  const ChoiceWriter writer_;
  std::deque<Part> parts_;  // queued, in order
  bool has_begun_ = false;
  bool has_ended_ = false;
  size_t prompt_idx_ = 0;  // prompt of the next choice
  size_t choice_idx_ = 0;
  std::vector<size_t> order_;  // OrderOfChoices of that prompt
};

}  // namespace espalier::openai
