// POST /v1/completions/render and /v1/chat/completions/render, as in vLLM: the
// equivalent calls of /inference/v1/generate, one per prompt. Each repeats the
// lists of the call, so an answer may be many times as long as its body. It is
// written in pieces, as by AnswerWriter.
//
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "openai/answer.h"
#include "openai/call.h"

namespace espalier::openai {

// Writes {"model", "request_id", "token_ids", "sampling_params", "stream"}; for
// completions a list of them. `model` is the model's name. The params are those
// in `body`, which `call` was read from, the beginning of the output that a
// template of two languages sets, and the API's default number of tokens.
class RenderWriter {
 public:
  // `call`, `model` and `prompts` outlive this; `body` need not.
  RenderWriter(const Call& call, std::string_view body, std::string_view model,
               std::span<const PromptParts> prompts);
  RenderWriter(const RenderWriter&) = delete;
  RenderWriter& operator=(const RenderWriter&) = delete;

  // Bytes of the answer, at most.
  int64_t max_bytes() const { return max_bytes_; }
  // Errors: kInvalidArgument naming the largest field, if the answer may have
  // more than Limits::max_answer_bytes.
  absl::Status CheckSize() const;

  // Appends the next `num_bytes`, or the rest if it is shorter. Returns false
  // once all is written.
  bool Append(size_t num_bytes, std::string* out);

 private:
  // A prompt's call has a text before the shared params, and one after them.
  enum class Part { kBegin, kShared, kEnd };

  void ReadShared(std::string_view body);
  // Begins the next part; false if there is none.
  bool Next();
  void AppendBegin(const PromptParts& prompt);
  void AppendEnd(const PromptParts& prompt);

  const Call& call_;
  const std::string_view model_;
  const std::span<const PromptParts> prompts_;
  std::string shared_;  // `"min_p":0.1,"seed":3` of "sampling_params"
  // Largest field of shared_.
  std::string largest_field_;
  int64_t max_bytes_ = 0;

  size_t prompt_idx_ = 0;  // prompt of the next part
  Part part_ = Part::kBegin;
  std::string text_;       // the present part, unless it is shared_
  std::string_view rest_;  // unwritten end of that part
};

}  // namespace espalier::openai
