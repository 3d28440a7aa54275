#include "openai/response.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"
#include "openai/answer_parts.h"
#include "openai/tool_calls.h"
#include "request/constraint_params.h"
#include "request/generation_params.h"

namespace espalier::openai {

// State of a response: its items, and how it ended.
struct ResponseState {
  std::string_view status;
  const PromptAnswer* answer = nullptr;  // null before there is one
  std::span<const ResponseItem> items = {};
  size_t last_item = 0;                     // the one in which it ended
  std::string_view incomplete_reason = {};  // empty: it is complete
  const Error* error = nullptr;
};

namespace {

const Hypothesis* BestOf(const PromptAnswer& answer) {
  const auto& hypotheses = answer.result.hypotheses;
  return hypotheses.empty() ? nullptr : &hypotheses[0];
}

std::string_view TextOf(const PromptAnswer& answer) {
  return answer.texts.empty() ? std::string_view() : answer.texts[0];
}

// Why an answer is not complete; empty if it is.
std::string_view IncompleteReason(const Call& call, const PromptParts& prompt,
                                  const PromptAnswer& answer,
                                  const Tokenizer* tokenizer, bool has_calls) {
  const Hypothesis* const best = BestOf(answer);
  if (best == nullptr) return NameOf(FinishReason::kDeadline);
  const FinishReason reason =
      ReasonOf(call, *best, prompt, tokenizer, has_calls);
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStop:
      return "";
    case FinishReason::kLength:
      return "max_output_tokens";
    case FinishReason::kDeadline:
      break;
  }
  return NameOf(reason);
}

ResponseState EndState(const Call& call, const PromptParts& prompt,
                       const PromptAnswer& answer, const Tokenizer* tokenizer,
                       const ResponseItems& items) {
  const std::string_view reason =
      IncompleteReason(call, prompt, answer, tokenizer, items.has_calls());
  return {.status = reason.empty() ? "completed" : "incomplete",
          .answer = &answer,
          .items = items.items(),
          .last_item = items.last(),
          .incomplete_reason = reason};
}

std::string_view IdOf(const AnswerHead& head) {
  return std::string_view(head.id).substr(head.id.find('_') + 1);
}

// "resp_7" has the message "msg_7" and calls "fc_7_0", "fc_7_1".
std::string ItemId(const AnswerHead& head, const ResponseItem& item) {
  if (!item.call_idx) return Concat("msg_", IdOf(head));
  return Concat("fc_", IdOf(head), "_", *item.call_idx);
}

void AppendPart(std::string_view text, std::string* out) {
  AppendField(R"({"type":"output_text","text":)", text, out);
  *out += R"(,"annotations":[],"logprobs":[]})";
}

// An item that has a `status`. One in progress has no part and no arguments.
void AppendItem(const AnswerHead& head, const ResponseItem& item,
                std::string_view status, std::string* out) {
  const bool is_there = status != "in_progress";
  const std::string id = ItemId(head, item);
  AppendField(R"({"type":)",
              std::string_view(item.call_idx ? "function_call" : "message"),
              out);
  AppendField(R"(,"id":)", std::string_view(id), out);
  AppendField(R"(,"status":)", status, out);
  if (item.call_idx) {
    const std::string call_id = ToolCallId(head, 0, *item.call_idx);
    AppendField(R"(,"call_id":)", std::string_view(call_id), out);
    AppendField(R"(,"name":)", std::string_view(item.name), out);
    AppendField(R"(,"arguments":)", std::string_view(is_there ? item.text : ""),
                out);
  } else {
    *out += R"(,"role":"assistant","content":[)";
    if (is_there) AppendPart(item.text, out);
    *out += ']';
  }
}

// Appends item `idx` of an answer that has ended.
void AppendEndedItem(const AnswerHead& head, const ResponseState& state,
                     size_t idx, std::string* out) {
  const bool is_last = idx == state.last_item;
  AppendItem(head, state.items[idx], is_last ? state.status : "completed", out);
  const Hypothesis* const best = BestOf(*state.answer);
  if (idx == 0 && best != nullptr) AppendScores(*best, out);
  *out += '}';
}

void AppendResponseUsage(const Usage& usage, std::string* out) {
  AppendField(R"({"input_tokens":)", usage.num_prompt_tokens, out);
  AppendField(R"(,"input_tokens_details":{"cached_tokens":)",
              usage.num_cached_tokens, out);
  AppendField(R"(},"output_tokens":)", usage.num_generated_tokens, out);
  *out += R"(,"output_tokens_details":{"reasoning_tokens":0})";
  AppendField(R"(,"total_tokens":)",
              usage.num_prompt_tokens + usage.num_generated_tokens, out);
  *out += '}';
}

// Appends JSON as a client wrote it. An event is one line; there are no line
// ends within strings.
void AppendOnOneLine(std::string_view json, std::string* out) {
  std::ranges::copy_if(json, std::back_inserter(*out),
                       [](char c) { return c != '\n' && c != '\r'; });
}

// The format that the text has: the call's own, or that of a schema which
// another field or the server sets. OpenAI has none for other constraints.
void AppendFormat(const Call& call, const GenerationParams& params,
                  std::string* out) {
  const std::optional<ConstraintParams>& constraint = params.constraint;
  // That of enforced calls of tools holds beside the format.
  const bool is_own =
      !call.text_format.empty() && constraint == call.params.constraint &&
      (call.NameOf("constraint") == "text" || !call.constrained_tools.empty());
  if (is_own) {
    AppendOnOneLine(call.text_format, out);
  } else if (constraint && constraint->json_schema) {
    *out += R"({"type":"json_schema","name":"json_schema","schema":)";
    AppendOnOneLine(*constraint->json_schema, out);
    *out += R"(,"strict":true})";
  } else {
    *out += R"({"type":"text"})";
  }
}

// The fields of the request that an answer repeats.
void AppendRequest(const Call& call, const GenerationParams& params,
                   std::string* out) {
  *out += R"(,"instructions":)";
  if (call.instructions.empty()) {
    *out += "null";
  } else {
    AppendJson(std::string_view(call.instructions), out);
  }
  *out += R"(,"max_output_tokens":)";
  if (call.Gives("max_new_tokens")) {
    AppendJson(*params.max_new_tokens, out);
  } else {
    *out += "null";
  }
  AppendField(R"(,"temperature":)", params.temperature, out);
  AppendField(R"(,"top_p":)", params.top_p, out);
  *out += R"(,"metadata":)";
  AppendOnOneLine(call.metadata.empty() ? "{}" : call.metadata, out);
  *out += R"(,"background":false,"parallel_tool_calls":)";
  *out += call.parallel_tool_calls ? "true" : "false";
  *out += R"(,"previous_response_id":null,"reasoning":{"effort":null,)"
          R"("summary":null},"store":false,"text":{"format":)";
  AppendFormat(call, params, out);
  const std::string& choice = call.tool_choice_text;
  *out += R"(},"tool_choice":)";
  AppendOnOneLine(choice.empty() ? "\"auto\"" : choice, out);
  *out += R"(,"tools":)";
  AppendOnOneLine(call.tools.empty() ? "[]" : call.tools, out);
  *out += R"(,"truncation":"disabled")";
}

void AppendOutcome(const AnswerHead& head, const ResponseState& state,
                   std::string* out) {
  *out += R"(,"error":)";
  if (state.error == nullptr) {
    *out += "null";
  } else {
    const std::string& code = state.error->code;
    AppendField(R"({"code":)",
                std::string_view(code.empty() ? state.error->type : code), out);
    AppendField(R"(,"message":)", std::string_view(state.error->message), out);
    *out += '}';
  }
  const std::string_view reason = state.incomplete_reason;
  *out += R"(,"incomplete_details":)";
  if (reason.empty()) {
    *out += "null";
  } else {
    AppendField(R"({"reason":)", reason, out);
    *out += '}';
  }
  *out += R"(,"output":[)";
  for (size_t i = 0; i < state.items.size(); ++i) {
    if (i > 0) *out += ',';
    AppendEndedItem(head, state, i, out);
  }
  *out += R"(],"usage":)";
  if (state.answer == nullptr) {
    *out += "null";
  } else {
    AppendResponseUsage(state.answer->result.usage, out);
  }
}

void AppendResponse(const Call& call, const AnswerHead& head,
                    const PromptParts& prompt, const ResponseState& state,
                    std::string* out) {
  AppendField(R"({"id":)", std::string_view(head.id), out);
  AppendField(R"(,"object":"response","created_at":)", head.created, out);
  AppendField(R"(,"model":)", std::string_view(head.model), out);
  AppendField(R"(,"status":)", state.status, out);
  AppendRequest(call, prompt.params, out);
  AppendOutcome(head, state, out);
  AppendWarnings(call.warnings, out);
  if (state.answer != nullptr) {
    AppendRuns({&prompt, 1}, {state.answer, 1}, out);
  }
  *out += '}';
}

}  // namespace

std::string WriteResponse(const Call& call, const AnswerHead& head,
                          const PromptParts& prompt, const PromptAnswer& answer,
                          const Tokenizer* tokenizer) {
  ResponseItems items(call, prompt, tokenizer);
  if (const Hypothesis* const best = BestOf(answer)) {
    items.Add(best->tokens, TextOf(answer));
  }
  items.Finish();
  std::string json;
  AppendResponse(call, head, prompt,
                 EndState(call, prompt, answer, tokenizer, items), &json);
  return json;
}

ResponseWriter::ResponseWriter(const Call& call, const AnswerHead& head,
                               PromptParts prompt, const Tokenizer* tokenizer)
    : call_(call),
      head_(head),
      prompt_(std::move(prompt)),
      tokenizer_(tokenizer),
      is_written_at_end_(prompt_.params.best_of.value_or(1) > 1),
      items_(call, prompt_, tokenizer) {}

void ResponseWriter::AppendEvent(std::string_view type,
                                 std::string_view members, std::string* out) {
  *out += Concat("event: ", type, "\ndata: {\"type\":\"", type,
                 "\",\"sequence_number\":", num_events_++, members, "}\n\n");
}

void ResponseWriter::AppendItemEvent(std::string_view type, size_t item,
                                     std::string_view members,
                                     std::string* out) {
  AppendEvent(type,
              Concat(R"(,"item_id":")", ItemId(head_, items_.items()[item]),
                     R"(","output_index":)", item, members),
              out);
}

void ResponseWriter::AppendPartEvent(std::string_view type, size_t item,
                                     std::string_view members,
                                     std::string* out) {
  AppendItemEvent(type, item, Concat(R"(,"content_index":0)", members), out);
}

void ResponseWriter::AppendBegin(size_t item, std::string* out) {
  std::string added = Concat(R"(,"output_index":)", item, R"(,"item":)");
  AppendItem(head_, items_.items()[item], "in_progress", &added);
  AppendEvent("response.output_item.added", added + '}', out);
  if (items_.items()[item].call_idx) return;
  std::string part = R"(,"part":)";
  AppendPart("", &part);
  AppendPartEvent("response.content_part.added", item, part, out);
}

void ResponseWriter::AppendEnd(size_t item, const ResponseState& state,
                               std::string* out) {
  const ResponseItem& ended = state.items[item];
  std::string members;
  if (ended.call_idx) {
    AppendField(R"(,"name":)", std::string_view(ended.name), &members);
    AppendField(R"(,"arguments":)", std::string_view(ended.text), &members);
    AppendItemEvent("response.function_call_arguments.done", item, members,
                    out);
  } else {
    AppendField(R"(,"text":)", std::string_view(ended.text), &members);
    members += R"(,"logprobs":[])";
    AppendPartEvent("response.output_text.done", item, members, out);
    std::string part = R"(,"part":)";
    AppendPart(ended.text, &part);
    AppendPartEvent("response.content_part.done", item, part, out);
  }
  std::string done = Concat(R"(,"output_index":)", item, R"(,"item":)");
  AppendEndedItem(head_, state, item, &done);
  AppendEvent("response.output_item.done", done, out);
}

void ResponseWriter::AppendDeltas(std::span<const ResponseItems::Delta> deltas,
                                  std::string* out) {
  for (const ResponseItems::Delta& delta : deltas) {
    if (delta.is_new) AppendBegin(delta.item, out);
    if (delta.text.empty()) continue;
    std::string members;
    AppendField(R"(,"delta":)", std::string_view(delta.text), &members);
    if (items_.items()[delta.item].call_idx) {
      AppendItemEvent("response.function_call_arguments.delta", delta.item,
                      members, out);
    } else {
      members += R"(,"logprobs":[])";
      AppendPartEvent("response.output_text.delta", delta.item, members, out);
    }
  }
}

void ResponseWriter::AddTokens(std::span<const TokenId> tokens,
                               std::string_view text, std::string* out) {
  num_tokens_ += tokens.size();
  text_ += text;
  AppendDeltas(items_.Add(tokens, text), out);
}

std::string ResponseWriter::Begin() {
  std::string events;
  std::string response = R"(,"response":)";
  AppendResponse(call_, head_, prompt_, {"in_progress"}, &response);
  AppendEvent("response.created", response, &events);
  AppendEvent("response.in_progress", response, &events);
  // With tools the first item is known once it begins.
  if (!items_.items().empty()) AppendBegin(0, &events);
  return events;
}

std::string ResponseWriter::Add(int /*prompt*/, const StreamEvent& event) {
  std::string events;
  if (is_written_at_end_) return events;
  if (const auto* sample = std::get_if<SampleEvent>(&event)) {
    AddTokens(sample->tokens, sample->text, &events);
  } else if (const auto* prefix = std::get_if<StablePrefixEvent>(&event)) {
    AddTokens(prefix->tokens, prefix->text, &events);
  }
  return events;
}

std::string ResponseWriter::Finish(int /*prompt*/, const PromptAnswer& answer) {
  std::string events;
  const std::string_view text = TextOf(answer);
  CHECK(text.starts_with(text_)) << "a delta that the text does not have";
  std::span<const TokenId> tokens;
  if (const Hypothesis* const best = BestOf(answer)) tokens = best->tokens;
  AddTokens(tokens.subspan(std::min(num_tokens_, tokens.size())),
            text.substr(text_.size()), &events);
  AppendDeltas(items_.Finish(), &events);
  const ResponseState state =
      EndState(call_, prompt_, answer, tokenizer_, items_);
  for (size_t i = 0; i < state.items.size(); ++i) AppendEnd(i, state, &events);
  std::string response = R"(,"response":)";
  AppendResponse(call_, head_, prompt_, state, &response);
  AppendEvent(Concat("response.", state.status), response, &events);
  return events;
}

std::string ResponseWriter::End() { return ""; }

std::string ResponseWriter::Fail(const Error& error) {
  std::string events;
  std::string response = R"(,"response":)";
  AppendResponse(call_, head_, prompt_, {.status = "failed", .error = &error},
                 &response);
  AppendEvent("response.failed", response, &events);
  return events;
}

}  // namespace espalier::openai
