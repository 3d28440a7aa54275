#include "openai/answer_writer.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/logprobs.h"
#include "openai/response.h"

namespace espalier::openai {
namespace {

// Items of a list that are appended at once: of 65 log-probabilities each they
// are some 100 KB.
constexpr size_t kItemsAtOnce = 16;

TokenCounts CountsOf(const Call& call, std::span<const PromptAnswer> answers) {
  TokenCounts counts;
  for (const PromptAnswer& answer : answers) {
    const Usage& usage = answer.result.usage;
    counts.prompt += usage.num_prompt_tokens;
    counts.cached += usage.num_cached_tokens;
    if (!call.prompt_only) counts.generated += usage.num_generated_tokens;
  }
  return counts;
}

}  // namespace

AnswerWriter::AnswerWriter(const Call& call, const AnswerHead& head,
                           std::span<const PromptParts> prompts,
                           std::span<const PromptAnswer> answers,
                           const Tokenizer* tokenizer)
    : call_(call),
      head_(head),
      prompts_(prompts),
      answers_(answers),
      writer_(call, head, tokenizer) {}

bool AnswerWriter::Append(size_t num_bytes, std::string* out) {
  const size_t end = out->size() + num_bytes;
  while (out->size() < end) {
    if (parts_.empty() && !AddParts()) return false;
    parts_.front()(out);
    parts_.pop_front();
  }
  return !parts_.empty() || !has_ended_;
}

bool AnswerWriter::AddParts() {
  if (has_ended_) return false;
  if (call_.api == Api::kResponses) {
    has_ended_ = true;
    parts_.push_back([this](std::string* out) {
      *out += WriteResponse(call_, head_, prompts_[0], answers_[0],
                            writer_.tokenizer());
    });
    return true;
  }
  if (!std::exchange(has_begun_, true)) {
    parts_.push_back([this](std::string* out) {
      AppendHead(call_.api, head_, /*is_chunk=*/false, out);
      *out += R"(,"choices":[)";
    });
    return true;
  }
  while (prompt_idx_ < prompts_.size() &&
         choice_idx_ == answers_[prompt_idx_].result.hypotheses.size()) {
    ++prompt_idx_;
    choice_idx_ = 0;
    if (prompt_idx_ == prompts_.size()) break;
    parts_.push_back([](std::string* out) { *out += ','; });
  }
  if (prompt_idx_ == prompts_.size()) {
    has_ended_ = true;
    AddEnd();
    return true;
  }
  AddChoice(prompts_[prompt_idx_], answers_[prompt_idx_],
            static_cast<int64_t>(prompt_idx_) * ChoicesPerPrompt(prompts_),
            choice_idx_);
  ++choice_idx_;
  return true;
}

void AnswerWriter::AddChoice(const PromptParts& prompt,
                             const PromptAnswer& answer, int64_t first_index,
                             size_t choice_idx) {
  const Result& result = answer.result;
  if (choice_idx == 0) order_ = OrderOfChoices(prompt, result.hypotheses);
  const size_t rank = order_[choice_idx];
  const Hypothesis& hypothesis = result.hypotheses[rank];
  const std::string_view own =
      answer.texts.empty() ? std::string_view() : answer.texts[rank];
  const auto choice = std::make_shared<Choice>();
  choice->text = call_.echo ? prompt.text : "";
  if (!call_.prompt_only) choice->text += own;
  ToolCallText& found = choice->found;
  if (auto tool_calls = writer_.ToolCallsOf(prompt)) {
    tool_calls->Feed(hypothesis.tokens, own, &found);
    tool_calls->Finish(&found);
    writer_.DropUnwanted(&found);
    choice->text = std::move(found.content);
  }
  choice->part = {
      .index = first_index + static_cast<int64_t>(choice_idx),
      .text = choice->text,
      .tool_calls = found.calls,
      .has_tool_calls = !found.calls.empty(),
      .tokens =
          call_.prompt_only ? std::span<const TokenId>() : hypothesis.tokens,
      .log_probs = writer_.LogProbsOf(prompt, result, hypothesis, own),
      .end = &hypothesis,
      .prompt = &prompt};
  const std::shared_ptr<const ChoicePart> part(choice, &choice->part);
  parts_.push_back([=, this](std::string* out) {
    if (choice_idx > 0) *out += ',';
    writer_.AppendWholeBegin(*part, out);
  });
  AddLogProbs(part);
  const bool has_prompt = call_.api == Api::kCompletions && choice_idx == 0;
  parts_.push_back([=, this, &prompt](std::string* out) {
    writer_.AppendEnd(*part, out);
    if (has_prompt) writer_.AppendPromptIds(prompt, out);
  });
  if (has_prompt) AddPromptLogProbs(result);
  parts_.push_back([](std::string* out) { *out += '}'; });
}

void AnswerWriter::AddLogProbs(const std::shared_ptr<const ChoicePart>& part) {
  if (part->log_probs.empty()) {
    parts_.push_back([](std::string* out) { *out += "null"; });
    return;
  }
  for (const LogProbList& list : LogProbListsOf(call_)) {
    AddList(Concat(list.begin, "["), part->log_probs.size(),
            [this, part, append = list.append](size_t item, std::string* out) {
              if (item > 0) *out += ',';
              append(part->log_probs[item], writer_.names(), out);
            });
  }
  parts_.push_back([](std::string* out) { *out += '}'; });
}

void AnswerWriter::AddPromptLogProbs(const Result& result) {
  if (!call_.shows_prompt_logprobs || !result.prompt_logprobs) return;
  std::string begin = R"(,"prompt_logprobs":[null)";
  const int64_t num_without =
      result.usage.num_prompt_tokens - std::ssize(*result.prompt_logprobs);
  for (int64_t i = 1; i < num_without; ++i) begin += ",null";
  AddList(std::move(begin), result.prompt_logprobs->size(),
          [this, &result](size_t item, std::string* out) {
            *out += ',';
            AppendPromptLogProb((*result.prompt_logprobs)[item],
                                writer_.names(), out);
          });
}

void AnswerWriter::AddList(std::string begin, size_t num_items,
                           const AppendItem& append) {
  parts_.push_back(
      [begin = std::move(begin)](std::string* out) { *out += begin; });
  for (size_t first = 0; first < num_items; first += kItemsAtOnce) {
    const size_t last = std::min(first + kItemsAtOnce, num_items);
    parts_.push_back([append, first, last](std::string* out) {
      for (size_t item = first; item < last; ++item) append(item, out);
    });
  }
  parts_.push_back([](std::string* out) { *out += ']'; });
}

void AnswerWriter::AddEnd() {
  parts_.push_back([this](std::string* out) {
    *out += ']';
    if (call_.api != Api::kCompletions) {
      writer_.AppendPromptIds(prompts_[0], out);
    }
  });
  if (call_.api != Api::kCompletions) AddPromptLogProbs(answers_[0].result);
  parts_.push_back([this](std::string* out) {
    *out += R"(,"usage":)";
    AppendUsage(CountsOf(call_, answers_), out);
    AppendWarnings(call_.warnings, out);
    AppendRuns(prompts_, answers_, out);
    *out += '}';
  });
}

}  // namespace espalier::openai
