// A response, the answer to POST /v1/responses: the best hypothesis as a
// message and the calls of tools in it (openai/response_items.h), whole or as
// the typed events of a stream.
//
//   {"id": "resp_...", "object": "response", "status": "completed",
//    "output": [{"type": "message", "id": "msg_...", "role": "assistant",
//                "content": [{"type": "output_text", "text": "..."}],
//                "score", "cum_log_prob"},
//               {"type": "function_call", "id": "fc_...", "call_id": "...",
//                "name": "f", "arguments": "{}", "status": "completed"}],
//    "usage": {"input_tokens", "output_tokens", ...}, ...}
//
// A hypothesis that ended for a reason other than EOS and stops is
// "incomplete"; incomplete_details has the reason. The first item has the
// scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/error.h"
#include "openai/event_writer.h"
#include "openai/response_items.h"
#include "request/stream_event.h"

namespace espalier::openai {

struct ResponseState;

std::string WriteResponse(const Call& call, const AnswerHead& head,
                          const PromptParts& prompt, const PromptAnswer& answer,
                          const Tokenizer* tokenizer);

// Writes numbered events, from 0: created, in_progress, the items as they
// begin, grow and end, and completed, incomplete or failed. The deltas of an
// item, concatenated, are its text.
class ResponseWriter : public EventWriter {
 public:
  // `call` and `tokenizer`, which may be null, outlive this.
  ResponseWriter(const Call& call, const AnswerHead& head, PromptParts prompt,
                 const Tokenizer* tokenizer);

  std::string Begin() override;
  std::string Add(int prompt, const StreamEvent& event) override;
  std::string Finish(int prompt, const PromptAnswer& answer) override;
  std::string End() override;
  std::string Fail(const Error& error) override;

 private:
  // Appends an event of this type with its additional `members`.
  void AppendEvent(std::string_view type, std::string_view members,
                   std::string* out);
  // Appends an event of an item, or of the part of a message.
  void AppendItemEvent(std::string_view type, size_t item,
                       std::string_view members, std::string* out);
  void AppendPartEvent(std::string_view type, size_t item,
                       std::string_view members, std::string* out);
  void AppendBegin(size_t item, std::string* out);
  void AppendEnd(size_t item, const ResponseState& state, std::string* out);
  void AppendDeltas(std::span<const ResponseItems::Delta> deltas,
                    std::string* out);
  void AddTokens(std::span<const TokenId> tokens, std::string_view text,
                 std::string* out);

  const Call& call_;
  const AnswerHead head_;
  const PromptParts prompt_;
  const Tokenizer* const tokenizer_;
  const bool is_written_at_end_;  // best of several samples
  int64_t num_events_ = 0;
  ResponseItems items_;
  std::string text_;  // so far, calls included
  size_t num_tokens_ = 0;
};

}  // namespace espalier::openai
