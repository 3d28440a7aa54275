#include "openai/render.h"

#include <map>
#include <optional>

#include "base/byte_order_mark.h"
#include "base/check.h"
#include "base/json_scan.h"
#include "openai/answer_parts.h"
#include "openai/call_fields.h"

namespace espalier::openai {
namespace {

// By their names in "sampling_params", as they stand in the body.
using Params = std::map<std::string, std::string, std::less<>>;

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
      params.insert_or_assign(std::move(name), std::string(value.text));
    }
  };
  CHECK(ScanJson(WithoutByteOrderMark(body), 1, take).ok());
  return params;
}

void AppendParams(const Params& params, const PromptParts& prompt,
                  std::string* out) {
  *out += R"("sampling_params":{)";
  for (const auto& [name, text] : params) {
    AppendJson(std::string_view(name), out);
    *out += ":" + text + ",";
  }
  if (prompt.params.logprobs) {
    AppendField(R"("logprobs":)", *prompt.params.logprobs, out);
    *out += ',';
  }
  if (prompt.params.max_new_tokens) {
    AppendField(R"("max_tokens":)", *prompt.params.max_new_tokens, out);
    *out += ',';
  }
  if (out->back() == ',') out->pop_back();
  *out += '}';
}

}  // namespace

std::string WriteRendered(const Call& call, std::string_view body,
                          std::string_view model,
                          std::span<const PromptParts> prompts) {
  const Params params = ParamsOf(body);
  std::string json;
  const auto append = [&](const PromptParts& prompt) {
    AppendField(R"({"model":)", model, &json);
    if (!call.request_id.empty()) {
      AppendField(R"(,"request_id":)", std::string_view(call.request_id),
                  &json);
    }
    json += R"(,"token_ids":)";
    AppendIds(prompt.tokens, &json);
    json += ',';
    AppendParams(params, prompt, &json);
    json += call.stream ? R"(,"stream":true)" : R"(,"stream":false)";
    AppendWarnings(call.warnings, &json);
    json += '}';
  };
  if (call.api == Api::kChat) {
    append(prompts[0]);
  } else {
    AppendList(prompts, append, &json);
  }
  return json;
}

}  // namespace espalier::openai
