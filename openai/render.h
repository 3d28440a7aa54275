// POST /v1/completions/render and /v1/chat/completions/render, as vLLM has
// them: the calls of /inference/v1/generate that a call comes to, one for each
// prompt. Each has the lists of the call, so an answer may be many times as
// long as its body: it is written piece by piece, as by AnswerWriter.
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

// {"model", "request_id", "token_ids", "sampling_params", "stream"}; of
// completions a list of these. `model` is its name. The params are those that
// `body`, which `call` was read from, gives, and the number of tokens that the
// API has by default.
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

  // Appends `num_bytes` of what is left, or all of it if it is less. False once
  // nothing is left.
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
  std::string shared_;         // `"min_p":0.1,"seed":3` of "sampling_params"
  std::string largest_field_;  // of these
  int64_t max_bytes_ = 0;

  size_t prompt_idx_ = 0;  // of the part that comes next
  Part part_ = Part::kBegin;
  std::string text_;       // the present part, unless it is shared_
  std::string_view rest_;  // of it
};

}  // namespace espalier::openai
