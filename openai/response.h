// A response, the answer to POST /v1/responses: the best hypothesis as one
// message, whole or as the typed events of a stream.
//
//   {"id": "resp_...", "object": "response", "status": "completed",
//    "output": [{"type": "message", "id": "msg_...", "role": "assistant",
//                "content": [{"type": "output_text", "text": "..."}],
//                "score", "cum_log_prob"}],
//    "usage": {"input_tokens", "output_tokens", ...}, ...}
//
// A hypothesis that ended for a reason other than EOS and stops is
// "incomplete"; incomplete_details has the reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/error.h"
#include "openai/event_writer.h"
#include "request/stream_event.h"

namespace espalier::openai {

std::string WriteResponse(const Call& call, const AnswerHead& head,
                          const PromptParts& prompt,
                          const PromptAnswer& answer);

// Writes numbered events, from 0: created, in_progress, the parts of the
// message as they begin, grow and end, and completed, incomplete or failed. The
// deltas, concatenated, are the text.
class ResponseWriter : public EventWriter {
 public:
  // `call` outlives this.
  ResponseWriter(const Call& call, const AnswerHead& head, PromptParts prompt);

  std::string Begin() override;
  std::string Add(int prompt, const StreamEvent& event) override;
  std::string Finish(int prompt, const PromptAnswer& answer) override;
  std::string End() override;
  std::string Fail(const Error& error) override;

 private:
  // Appends an event of this type with its additional `members`.
  void AppendEvent(std::string_view type, std::string_view members,
                   std::string* out);
  // Appends an event of the text part.
  void AppendPartEvent(std::string_view type, std::string_view members,
                       std::string* out);
  void AppendDelta(std::string_view text, std::string* out);

  const Call& call_;
  const AnswerHead head_;
  const PromptParts prompt_;
  const bool is_written_at_end_;  // best of several samples
  int64_t num_events_ = 0;
  std::string text_;  // so far
};

}  // namespace espalier::openai
