// ChunkWriter: the answer to a call that streams, as server-sent events, from
// what the engine tells of its prompts while they run.
//
//   ChunkWriter writer(call, head, prompts, tokenizer);
//   Send(writer.Begin());
//   for each event of prompt i:       Send(writer.Add(i, event));
//   when prompt i has its result:     Send(writer.Finish(i, answer));
//   when all have:                    Send(writer.End());
//   where one failed, instead:        Send(writer.Fail(error));
//
// Each returns whole events, "data: ...\n\n" one after the other, or nothing:
// there are no empty deltas. Every stream ends in an error or a finish_reason
// for each choice, then the usage if it was asked for, then [DONE].
//
// Samples come interleaved, that of number i of prompt p as choice p * n + i.
// Where best_of draws more than are returned, which ones these are is known in
// the end: then each comes whole. Beams: choice p * n is their agreed prefix
// while it grows, and in the end the rest of the best hypothesis; then the
// others come whole, each in one event. With stream_beams there are events
// besides, of all beams that live:
//
//   {"id": ..., "choices": [],
//    "espalier": {"prompt": 0, "step": 3, "beams": [
//        {"text": "...", "tokens": [...], "score": -0.4, "cum_log_prob": -1.2,
//         "finish_reason": null}, ...]}}
//
// Log-probabilities of samples come with their tokens, or after them while the
// text waits for what may be a stop; those of beams with the last event of a
// choice, as the engine reports them in the end. So does the whole of a choice
// that echoes its prompt with log-probabilities.
//
// Law: the events of a choice, texts, token ids and log-probabilities one after
// the other, are the choice of the same index in the whole answer
// (openai/answer.h).
//
// Thread safety: none of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/error.h"
#include "openai/event_writer.h"
#include "request/stream_event.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

class ChunkWriter : public EventWriter {
 public:
  // `prompts` as they run, one for each prompt of the call. `call` and
  // `tokenizer`, which may be null, outlive this.
  ChunkWriter(const Call& call, const AnswerHead& head,
              std::vector<PromptParts> prompts, const Tokenizer* tokenizer);
  ~ChunkWriter() override;
  ChunkWriter(ChunkWriter&&) noexcept;
  ChunkWriter& operator=(ChunkWriter&&) noexcept;

  // What comes before the first token: the role of a chat's choices, warnings,
  // the prompts where they are to be echoed.
  std::string Begin() override;
  std::string Add(int prompt, const StreamEvent& event) override;
  std::string Finish(int prompt, const PromptAnswer& answer) override;
  // Usage, [DONE].
  std::string End() override;
  // The error, [DONE].
  std::string Fail(const Error& error) override;

  // Usage so far, of prompts that are finished.
  int64_t num_prompt_tokens() const;
  int64_t num_generated_tokens() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::openai
