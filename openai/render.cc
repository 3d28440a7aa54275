#include "openai/render.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/byte_order_mark.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/call_fields.h"

namespace espalier::openai {
namespace {

// By their names in "sampling_params", as they stand in the body.
using Params = std::map<std::string, std::string_view, std::less<>>;

// Fields that chats call otherwise, or that have had their effect.
bool IsElsewhere(std::string_view name) {
  return name == "logprobs" || name == "max_tokens" ||
         name == "max_new_tokens" || name == "max_completion_tokens" ||
         name == "truncate_prompt_tokens";
}

Params ParamsOf(std::string_view body) {
  Params params;
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    std::string name = Unquoted(key);
    const bool is_param = FindCallField(name, kInSampling).has_value();
    if (!is_param || IsElsewhere(name)) return;
    if (value.is_null()) {
      params.erase(name);
    } else {
      params.insert_or_assign(std::move(name), value.text);
    }
  };
  CHECK(ScanJson(WithoutByteOrderMark(body), 1, take).ok());
  return params;
}

// Returns the field that says how an output begins which a template of two
// languages begins, and its value; empty if there is no such template.
std::pair<std::string, std::string> BeginOfTemplate(const Call& call) {
  const bool has_begin = std::ranges::any_of(
      call.given, [](const GivenParam& g) { return g.name == "template"; });
  if (!has_begin) return {};
  const std::optional<int64_t>& forced = call.params.forced_bos_token_id;
  if (forced) return {"forced_bos_token_id", Concat(*forced)};
  const auto& tokens = call.params.decoder_prompt_tokens;
  return {"decoder_prompt_tokens",
          WriteJson(json::array(tokens.begin(), tokens.end()))};
}

// A 32-bit number and the comma after it.
constexpr int64_t kMaxBytesOfId = 12;
// Names, punctuation and two numbers of a call.
constexpr int64_t kMaxBytesOfFrame = 256;

}  // namespace

RenderWriter::RenderWriter(const Call& call, std::string_view body,
                           std::string_view model,
                           std::span<const PromptParts> prompts)
    : call_(call), model_(model), prompts_(prompts) {
  ReadShared(body);
  std::string names;
  AppendJson(model_, &names);
  AppendJson(std::string_view(call_.request_id), &names);
  AppendWarnings(call_.warnings, &names);
  for (const PromptParts& prompt : prompts_) {
    max_bytes_ += kMaxBytesOfFrame + std::ssize(names) + std::ssize(shared_) +
                  kMaxBytesOfId * std::ssize(prompt.tokens);
  }
}

void RenderWriter::ReadShared(std::string_view body) {
  Params params = ParamsOf(body);
  std::string calls;
  if (!call_.constrained_tools.empty()) {
    calls =
        Concat(R"({"tool_calls":)", *call_.params.constraint->tool_calls, "}");
    params.erase("response_format");
    params.insert_or_assign("constraint", calls);
  }
  const auto [begin_field, begin] = BeginOfTemplate(call_);
  if (!begin_field.empty()) {
    params.erase("decoder_prompt");
    params.insert_or_assign(begin_field, begin);
  }
  size_t largest = 0;
  for (const auto& [name, text] : params) {
    if (!shared_.empty()) shared_ += ',';
    AppendJson(std::string_view(name), &shared_);
    shared_ += ':';
    shared_ += text;
    if (text.size() <= largest) continue;
    largest = text.size();
    largest_field_ = name;
  }
}

absl::Status RenderWriter::CheckSize() const {
  const int64_t limit = call_.limits.max_answer_bytes;
  if (max_bytes_ <= limit) return absl::OkStatus();
  const int64_t of_shared = std::ssize(shared_) * std::ssize(prompts_);
  const std::string_view field = of_shared > max_bytes_ / 2
                                     ? std::string_view(largest_field_)
                                     : std::string_view("prompt");
  return InvalidField(FieldName{field}, " must make an answer of at most ",
                      Limit(limit), " bytes (--max-answer-bytes)",
                      Got("up to ", max_bytes_, " in ", prompts_.size(),
                          prompts_.size() == 1 ? " prompt" : " prompts"));
}

bool RenderWriter::Append(size_t num_bytes, std::string* out) {
  while (!rest_.empty() || Next()) {
    const size_t count = std::min(num_bytes, rest_.size());
    out->append(rest_.substr(0, count));
    rest_.remove_prefix(count);
    num_bytes -= count;
    if (num_bytes == 0) return !rest_.empty() || prompt_idx_ < prompts_.size();
  }
  return false;
}

bool RenderWriter::Next() {
  while (rest_.empty()) {
    if (prompt_idx_ == prompts_.size()) return false;
    const PromptParts& prompt = prompts_[prompt_idx_];
    text_.clear();
    switch (part_) {
      case Part::kBegin:
        AppendBegin(prompt);
        rest_ = text_;
        part_ = Part::kShared;
        break;
      case Part::kShared:
        rest_ = shared_;
        part_ = Part::kEnd;
        break;
      case Part::kEnd:
        AppendEnd(prompt);
        rest_ = text_;
        part_ = Part::kBegin;
        ++prompt_idx_;
    }
  }
  return true;
}

void RenderWriter::AppendBegin(const PromptParts& prompt) {
  if (call_.api != Api::kChat) text_ += prompt_idx_ == 0 ? '[' : ',';
  AppendField(R"({"model":)", model_, &text_);
  if (!call_.request_id.empty()) {
    AppendField(R"(,"request_id":)", std::string_view(call_.request_id),
                &text_);
  }
  text_ += R"(,"token_ids":)";
  AppendIds(prompt.tokens, &text_);
  text_ += R"(,"sampling_params":{)";
}

void RenderWriter::AppendEnd(const PromptParts& prompt) {
  bool is_first = shared_.empty();
  const auto add = [&](std::string_view name, std::optional<int64_t> value) {
    if (!value.has_value()) return;
    if (!is_first) text_ += ',';
    is_first = false;
    AppendField(name, *value, &text_);
  };
  add(R"("logprobs":)", prompt.params.logprobs);
  // The default of chats depends on the prompt's length.
  add(R"("max_tokens":)", prompt.params.max_new_tokens);
  text_ += call_.stream ? R"(},"stream":true)" : R"(},"stream":false)";
  AppendWarnings(call_.warnings, &text_);
  text_ += '}';
  if (call_.api != Api::kChat && prompt_idx_ + 1 == prompts_.size()) {
    text_ += ']';
  }
}

}  // namespace espalier::openai
