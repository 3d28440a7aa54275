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
#include "request/constraint_params.h"
#include "request/generation_params.h"

namespace espalier::openai {
namespace {

// State of a response.
struct ResponseState {
  std::string_view status;
  const PromptAnswer* answer = nullptr;  // null before there is one
  const Error* error = nullptr;
};

const Hypothesis* BestOf(const PromptAnswer& answer) {
  const auto& hypotheses = answer.result.hypotheses;
  return hypotheses.empty() ? nullptr : &hypotheses[0];
}

std::string_view TextOf(const PromptAnswer& answer) {
  return answer.texts.empty() ? std::string_view() : answer.texts[0];
}

// Why an answer is not complete; empty if it is.
std::string_view IncompleteReason(const PromptAnswer& answer) {
  const Hypothesis* const best = BestOf(answer);
  if (best == nullptr) return NameOf(FinishReason::kDeadline);
  switch (best->finish_reason) {
    case FinishReason::kEos:
    case FinishReason::kStop:
      return "";
    case FinishReason::kLength:
      return "max_output_tokens";
    case FinishReason::kDeadline:
      break;
  }
  return NameOf(best->finish_reason);
}

std::string_view StatusOf(const PromptAnswer& answer) {
  return IncompleteReason(answer).empty() ? "completed" : "incomplete";
}

// "resp_7" has the message "msg_7".
std::string MessageId(const AnswerHead& head) {
  return "msg_" + head.id.substr(head.id.find('_') + 1);
}

void AppendPart(std::string_view text, std::string* out) {
  AppendField(R"({"type":"output_text","text":)", text, out);
  *out += R"(,"annotations":[],"logprobs":[]})";
}

// The message; without an answer it is empty, and has no part yet.
void AppendMessage(const AnswerHead& head, const PromptAnswer* answer,
                   std::string* out) {
  const std::string id = MessageId(head);
  AppendField(R"({"type":"message","id":)", std::string_view(id), out);
  AppendField(R"(,"status":)",
              answer == nullptr ? "in_progress" : StatusOf(*answer), out);
  *out += R"(,"role":"assistant","content":[)";
  if (answer != nullptr) AppendPart(TextOf(*answer), out);
  *out += ']';
  if (answer != nullptr && BestOf(*answer) != nullptr) {
    AppendScores(*BestOf(*answer), out);
  }
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
  const bool is_calls = !call.text_format.empty() &&
                        constraint == call.params.constraint &&
                        call.NameOf("constraint") == "text";
  if (is_calls) {
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
  *out += R"(,"background":false,"parallel_tool_calls":true,)"
          R"("previous_response_id":null,"reasoning":{"effort":null,)"
          R"("summary":null},"store":false,"text":{"format":)";
  AppendFormat(call, params, out);
  *out += R"(},"tool_choice":"auto","tools":[],"truncation":"disabled")";
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
  const std::string_view reason =
      state.answer == nullptr ? "" : IncompleteReason(*state.answer);
  *out += R"(,"incomplete_details":)";
  if (reason.empty()) {
    *out += "null";
  } else {
    AppendField(R"({"reason":)", reason, out);
    *out += '}';
  }
  *out += R"(,"output":[)";
  if (state.answer != nullptr) AppendMessage(head, state.answer, out);
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
                          const PromptParts& prompt,
                          const PromptAnswer& answer) {
  std::string json;
  AppendResponse(call, head, prompt, {StatusOf(answer), &answer}, &json);
  return json;
}

ResponseWriter::ResponseWriter(const Call& call, const AnswerHead& head,
                               PromptParts prompt)
    : call_(call),
      head_(head),
      prompt_(std::move(prompt)),
      is_written_at_end_(prompt_.params.best_of.value_or(1) > 1) {}

void ResponseWriter::AppendEvent(std::string_view type,
                                 std::string_view members, std::string* out) {
  *out += Concat("event: ", type, "\ndata: {\"type\":\"", type,
                 "\",\"sequence_number\":", num_events_++, members, "}\n\n");
}

void ResponseWriter::AppendPartEvent(std::string_view type,
                                     std::string_view members,
                                     std::string* out) {
  AppendEvent(type,
              Concat(R"(,"item_id":")", MessageId(head_),
                     R"(","output_index":0,"content_index":0)", members),
              out);
}

void ResponseWriter::AppendDelta(std::string_view text, std::string* out) {
  if (text.empty()) return;
  text_ += text;
  std::string members;
  AppendField(R"(,"delta":)", text, &members);
  members += R"(,"logprobs":[])";
  AppendPartEvent("response.output_text.delta", members, out);
}

std::string ResponseWriter::Begin() {
  std::string events;
  std::string response = R"(,"response":)";
  AppendResponse(call_, head_, prompt_, {"in_progress"}, &response);
  AppendEvent("response.created", response, &events);
  AppendEvent("response.in_progress", response, &events);
  std::string item = R"(,"output_index":0,"item":)";
  AppendMessage(head_, nullptr, &item);
  AppendEvent("response.output_item.added", item, &events);
  std::string part = R"(,"part":)";
  AppendPart("", &part);
  AppendPartEvent("response.content_part.added", part, &events);
  return events;
}

std::string ResponseWriter::Add(int /*prompt*/, const StreamEvent& event) {
  std::string events;
  if (is_written_at_end_) return events;
  if (const auto* sample = std::get_if<SampleEvent>(&event)) {
    AppendDelta(sample->text, &events);
  } else if (const auto* prefix = std::get_if<StablePrefixEvent>(&event)) {
    AppendDelta(prefix->text, &events);
  }
  return events;
}

std::string ResponseWriter::Finish(int /*prompt*/, const PromptAnswer& answer) {
  std::string events;
  const std::string_view text = TextOf(answer);
  CHECK(text.starts_with(text_)) << "a delta that the text does not have";
  AppendDelta(text.substr(text_.size()), &events);
  std::string members;
  AppendField(R"(,"text":)", text, &members);
  members += R"(,"logprobs":[])";
  AppendPartEvent("response.output_text.done", members, &events);
  std::string part = R"(,"part":)";
  AppendPart(text, &part);
  AppendPartEvent("response.content_part.done", part, &events);
  std::string item = R"(,"output_index":0,"item":)";
  AppendMessage(head_, &answer, &item);
  AppendEvent("response.output_item.done", item, &events);
  const std::string_view status = StatusOf(answer);
  std::string response = R"(,"response":)";
  AppendResponse(call_, head_, prompt_, {status, &answer}, &response);
  AppendEvent(Concat("response.", status), response, &events);
  return events;
}

std::string ResponseWriter::End() { return ""; }

std::string ResponseWriter::Fail(const Error& error) {
  std::string events;
  std::string response = R"(,"response":)";
  AppendResponse(call_, head_, prompt_, {"failed", nullptr, &error}, &response);
  AppendEvent("response.failed", response, &events);
  return events;
}

}  // namespace espalier::openai
