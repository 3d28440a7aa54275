#include "openai/chunk_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/choice_stream.h"
#include "openai/live_beams.h"

namespace espalier::openai {
namespace {

constexpr std::string_view kEventEnd = "}\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";

// State of a prompt's choices while they run.
struct PromptStream {
  PromptParts parts;
  int64_t first_index = 0;
  bool has_beams = false;
  // Writes each choice whole, when the prompt ends.
  bool is_written_at_end = false;
  std::vector<ChoiceStream> choices;
  std::optional<LiveBeams> live_beams;
  bool has_written_ids = false;  // prompt token ids
  bool is_finished = false;
};

}  // namespace

class ChunkWriter::Impl {
 public:
  Impl(const Call& call, const AnswerHead& head,
       std::vector<PromptParts> prompts, const Tokenizer* tokenizer);

  std::string Begin();
  std::string Add(int prompt_idx, const StreamEvent& event);
  std::string Finish(int prompt_idx, const PromptAnswer& answer);
  std::string End();
  const TokenCounts& counts() const { return counts_; }

 private:
  void BeginEvent(std::string* out) { *out += event_begin_; }
  // After "choices":[...], up to the end of the event.
  void EndEvent(std::string* out);
  void AppendIdsOnce(PromptStream* prompt, std::string* out);
  void AppendNewsOf(PromptStream* prompt, ChoiceStream* choice,
                    std::string* out);
  void AppendBeams(int prompt_idx, const BeamsEvent& event, std::string* out);
  void AppendEnds(PromptStream* prompt, size_t choice_idx,
                  const PromptAnswer& answer, size_t hypothesis_idx,
                  std::string* out);

  const Call& call_;
  const AnswerHead head_;
  const ChoiceWriter writer_;
  std::string event_begin_;  // up to "choices":[
  std::vector<PromptStream> prompts_;
  TokenCounts counts_;  // written so far
  bool has_warned_ = false;
};

ChunkWriter::Impl::Impl(const Call& call, const AnswerHead& head,
                        std::vector<PromptParts> prompts,
                        const Tokenizer* tokenizer)
    : call_(call),
      head_(head),
      writer_(call, head_, tokenizer),
      event_begin_("data: ") {
  AppendHead(call.api, head, /*is_chunk=*/true, &event_begin_);
  event_begin_ += R"(,"choices":[)";
  const int64_t stride = ChoicesPerPrompt(prompts);
  prompts_.reserve(prompts.size());  // choices point into them
  for (PromptParts& parts : prompts) {
    PromptStream& prompt = prompts_.emplace_back();
    prompt.parts = std::move(parts);
    prompt.first_index = (std::ssize(prompts_) - 1) * stride;
    const GenerationParams& params = prompt.parts.params;
    const int64_t n = params.num_return_sequences;
    prompt.has_beams = IsBeamSearch(params);
    prompt.is_written_at_end = call.prompt_only ||
                               (call.echo && params.prompt_logprobs) ||
                               params.best_of.value_or(n) > n;
    for (int64_t i = 0; i < n; ++i) {
      prompt.choices.emplace_back(prompt.first_index + i, &prompt.parts,
                                  &writer_);
    }
    counts_.prompt += std::ssize(prompt.parts.tokens);
    if (call.stream_beams) prompt.live_beams.emplace(prompt.parts, tokenizer);
  }
}

void ChunkWriter::Impl::EndEvent(std::string* out) {
  if (call_.continuous_usage) {
    *out += R"(,"usage":)";
    AppendUsage(counts_, out);
  } else if (call_.include_usage) {
    *out += R"(,"usage":null)";
  }
  if (!std::exchange(has_warned_, true)) AppendWarnings(call_.warnings, out);
  *out += kEventEnd;
}

void ChunkWriter::Impl::AppendIdsOnce(PromptStream* prompt, std::string* out) {
  if (std::exchange(prompt->has_written_ids, true)) return;
  writer_.AppendPromptIds(prompt->parts, out);
}

std::string ChunkWriter::Impl::Begin() {
  std::string events;
  for (PromptStream& prompt : prompts_) {
    for (size_t i = 0; i < prompt.choices.size(); ++i) {
      if (call_.api == Api::kChat) {
        BeginEvent(&events);
        AppendField(R"({"index":)",
                    prompt.first_index + static_cast<int64_t>(i), &events);
        events += R"(,"delta":{"role":"assistant","content":""})"
                  R"(,"logprobs":null,"finish_reason":null}])";
        AppendIdsOnce(&prompt, &events);
        EndEvent(&events);
      }
      const bool grows =
          !prompt.is_written_at_end && (!prompt.has_beams || i == 0);
      if (call_.echo && grows) {
        prompt.choices[i].AddPrompt(prompt.parts.text);
        AppendNewsOf(&prompt, &prompt.choices[i], &events);
      }
    }
  }
  return events;
}

void ChunkWriter::Impl::AppendNewsOf(PromptStream* prompt, ChoiceStream* choice,
                                     std::string* out) {
  if (!choice->has_news()) return;
  BeginEvent(out);
  choice->AppendNews(out);
  if (call_.api == Api::kCompletions) AppendIdsOnce(prompt, out);
  *out += "}]";
  if (call_.api != Api::kCompletions) AppendIdsOnce(prompt, out);
  EndEvent(out);
}

void ChunkWriter::Impl::AppendBeams(int prompt_idx, const BeamsEvent& event,
                                    std::string* out) {
  PromptStream& prompt = prompts_[prompt_idx];
  if (!prompt.live_beams) return;
  BeginEvent(out);
  *out += R"(],"espalier":)";
  prompt.live_beams->Append(prompt_idx, event, out);
  EndEvent(out);
}

std::string ChunkWriter::Impl::Add(int prompt_idx, const StreamEvent& event) {
  PromptStream& prompt = prompts_[prompt_idx];
  std::string events;
  if (const auto* beams = std::get_if<BeamsEvent>(&event)) {
    AppendBeams(prompt_idx, *beams, &events);
    return events;
  }
  if (prompt.is_written_at_end) return events;
  const auto add = [&](ChoiceStream* choice, const auto& grown,
                       std::span<const TokenLogProb> log_probs) {
    choice->Add(grown.tokens, grown.text, log_probs);
    counts_.generated += std::ssize(grown.tokens);
    AppendNewsOf(&prompt, choice, &events);
  };
  if (const auto* sample = std::get_if<SampleEvent>(&event)) {
    add(&prompt.choices[sample->sample], *sample, sample->logprobs);
  } else if (const auto* prefix = std::get_if<StablePrefixEvent>(&event)) {
    add(&prompt.choices[0], *prefix, {});
  } else {
    CHECK(false) << "results are finished, not added";
  }
  return events;
}

void ChunkWriter::Impl::AppendEnds(PromptStream* prompt, size_t choice_idx,
                                   const PromptAnswer& answer,
                                   size_t hypothesis_idx, std::string* out) {
  const std::string_view own =
      answer.texts.empty() ? ""
                           : std::string_view(answer.texts[hypothesis_idx]);
  const std::string text =
      Concat(call_.echo ? std::string_view(prompt->parts.text) : "",
             call_.prompt_only ? "" : own);
  BeginEvent(out);
  prompt->choices[choice_idx].AppendEnd(
      answer.result, answer.result.hypotheses[hypothesis_idx], own, text, out);
  const bool is_completion = call_.api == Api::kCompletions;
  if (!is_completion) *out += "}]";
  AppendIdsOnce(prompt, out);
  if (choice_idx == 0) writer_.AppendPromptLogProbs(answer.result, out);
  if (is_completion) *out += "}]";
  if (choice_idx == 0) {
    *out += R"(,"espalier":)";
    AppendRun(prompt->parts, answer.result, out);
  }
  EndEvent(out);
}

std::string ChunkWriter::Impl::Finish(int prompt_idx,
                                      const PromptAnswer& answer) {
  PromptStream& prompt = prompts_[prompt_idx];
  CHECK(!std::exchange(prompt.is_finished, true)) << "finished twice";
  const std::span<const Hypothesis> hypotheses = answer.result.hypotheses;
  for (const ChoiceStream& choice : prompt.choices) {
    counts_.generated -= std::ssize(choice.tokens());
  }
  const Usage& usage = answer.result.usage;
  if (!call_.prompt_only) counts_.generated += usage.num_generated_tokens;
  counts_.cached += usage.num_cached_tokens;
  const std::vector<size_t> order = OrderOfChoices(prompt.parts, hypotheses);
  std::string events;
  const size_t num_choices = std::min(prompt.choices.size(), hypotheses.size());
  for (size_t i = 0; i < num_choices; ++i) {
    AppendEnds(&prompt, i, answer, order[i], &events);
  }
  return events;
}

std::string ChunkWriter::Impl::End() {
  std::string events;
  if (call_.include_usage) {
    BeginEvent(&events);
    events += R"(],"usage":)";
    AppendUsage(counts_, &events);
    events += kEventEnd;
  }
  events += kDone;
  return events;
}

ChunkWriter::ChunkWriter(const Call& call, const AnswerHead& head,
                         std::vector<PromptParts> prompts,
                         const Tokenizer* tokenizer)
    : impl_(std::make_unique<Impl>(call, head, std::move(prompts), tokenizer)) {
}
ChunkWriter::~ChunkWriter() = default;
ChunkWriter::ChunkWriter(ChunkWriter&&) noexcept = default;
ChunkWriter& ChunkWriter::operator=(ChunkWriter&&) noexcept = default;

std::string ChunkWriter::Begin() { return impl_->Begin(); }
std::string ChunkWriter::Add(int prompt, const StreamEvent& event) {
  return impl_->Add(prompt, event);
}
std::string ChunkWriter::Finish(int prompt, const PromptAnswer& answer) {
  return impl_->Finish(prompt, answer);
}
std::string ChunkWriter::End() { return impl_->End(); }

std::string ChunkWriter::Fail(const Error& error) {
  return Concat("data: ", WriteError(error), "\n\n", impl_->End());
}

int64_t ChunkWriter::num_prompt_tokens() const {
  return impl_->counts().prompt;
}
int64_t ChunkWriter::num_generated_tokens() const {
  return impl_->counts().generated;
}

}  // namespace espalier::openai
