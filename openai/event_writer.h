// EventWriter: the streamed answer to a call, as server-sent events. Each API
// has its own subclass.
//
// Each function returns whole events, one after the other, or nothing.
//
// Thread safety: none of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/error.h"
#include "request/stream_event.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

class EventWriter {
 public:
  virtual ~EventWriter() = default;

  // Writes everything before the first token.
  virtual std::string Begin() = 0;
  // REQUIRES: `event` is no Result.
  virtual std::string Add(int prompt, const StreamEvent& event) = 0;
  // REQUIRES: all events of the prompt were added.
  virtual std::string Finish(int prompt, const PromptAnswer& answer) = 0;
  // REQUIRES: all prompts are finished.
  virtual std::string End() = 0;
  // May be called at any time; nothing follows.
  virtual std::string Fail(const Error& error) = 0;
};

// Makes the writer for the call's API. `call` and `tokenizer`, which may be
// null, outlive it.
std::unique_ptr<EventWriter> MakeEventWriter(const Call& call,
                                             const AnswerHead& head,
                                             std::vector<PromptParts> prompts,
                                             const Tokenizer* tokenizer);

// An event-stream comment, which clients ignore: it keeps a connection alive.
inline constexpr char kPing[] = ": ping\n\n";

}  // namespace espalier::openai
