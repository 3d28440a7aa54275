// TokenBytesOf: the tokens of a tokenizer as the bytes that they add to a text,
// for constraints (constrain/token_constraint.h).
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <span>

#include "base/ids.h"
#include "constrain/token_constraint.h"
#include "text/chat/tool_call_format.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Returns the vocabulary of a text that begins with the first generated token:
// the space that the tokenizer drops there is not part of the text. Special
// tokens add nothing.
//
// A Marian model drops spaces at the end of its texts, too. The bytes are those
// before that.
//   without     tokens that add nothing in addition, ascending
//   num_tokens  ids of the vocabulary, those of a model; unset: those of the
//               tokenizer. Ids that the tokenizer lacks add nothing
//   marks       tokens that add the byte that stands for them. Other tokens
//               with this byte, which no text has, add nothing
TokenVocabulary TokenBytesOf(const Tokenizer& tokenizer,
                             std::span<const TokenId> without = {},
                             std::optional<int> num_tokens = std::nullopt,
                             std::span<const ToolCallMark> marks = {});

}  // namespace espalier
