// ChunkWriter: the streamed answer to a call, as server-sent events written
// from the engine's stream events.
//
//   ChunkWriter writer(call, head, prompts, tokenizer);
//   Send(writer.Begin());
//   for each event of prompt i:       Send(writer.Add(i, event));
//   when prompt i has its result:     Send(writer.Finish(i, answer));
//   when all have:                    Send(writer.End());
//   if one failed, instead:           Send(writer.Fail(error));
//
// Each function returns whole events, "data: ...\n\n" one after the other, or
// nothing: there are no empty deltas. Every stream ends with an error, or with
// a finish_reason for each choice, the usage if it was requested, and [DONE].
//
// Samples are interleaved; sample i of prompt p is choice p * n + i. If best_of
// draws more samples than are returned, the returned ones are known only at the
// end, and each is written whole. Beams: choice p * n streams the stable
// prefix, and at the end the rest of the best hypothesis; the other choices
// follow whole, each in one event. With stream_beams further events have the
// state of all live beams:
//
//   {"id": ..., "choices": [],
//    "espalier": {"prompt": 0, "step": 3, "beams": [
//        {"text": "...", "tokens": [...], "score": -0.4, "cum_log_prob": -1.2,
//         "finish_reason": null}, ...]}}
//
// Log-probabilities of samples accompany their tokens, or follow them while the
// text may still become a stop string. Log-probabilities of beams are in the
// last event of a choice, because the engine reports them at the end. A choice
// that echoes its prompt with log-probabilities is written whole at the end.
//
// Invariant: the texts, token ids and log-probabilities of a choice's events,
// concatenated, equal the choice of the same index in the whole answer
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

  // Writes everything before the first token: the role of a chat's choices,
  // warnings, and echoed prompts.
  std::string Begin() override;
  std::string Add(int prompt, const StreamEvent& event) override;
  std::string Finish(int prompt, const PromptAnswer& answer) override;
  // Usage, [DONE].
  std::string End() override;
  // The error, [DONE].
  std::string Fail(const Error& error) override;

  // Usage so far, over finished prompts.
  int64_t num_prompt_tokens() const;
  int64_t num_generated_tokens() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::openai
