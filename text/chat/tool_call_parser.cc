#include "text/chat/tool_call_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json_scan.h"

namespace espalier {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kHermesEnd = "</tool_call>";
// Longer than any name of a tool, with an id and marks.
constexpr size_t kMaxNameBytes = 256;

bool IsSpace(char c) { return kSpaces.find(c) != kSpaces.npos; }

bool IsAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

// True for characters that JSON may have outside of strings.
bool IsStructural(char c) {
  constexpr std::string_view kMarks = "{}[]:,\"+-.";
  return IsSpace(c) || IsAlnum(c) || kMarks.find(c) != kMarks.npos;
}

std::string_view MarkOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kNone:
      return "";
    case ToolCallFormat::kHermes:
      return "<tool_call>";
    case ToolCallFormat::kLlama3Json:
      return "<|python_tag|>";
    case ToolCallFormat::kMistral:
      return "[TOOL_CALLS]";
  }
  return "";
}

struct CallText {
  std::string name;
  std::string arguments;
  bool ends_with_arguments = false;
};

// Nothing if it is no JSON of a call.
std::optional<CallText> ReadCallText(std::string_view object) {
  std::string_view name, last_key;
  JsonText arguments;
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    last_key = key;
    if (key == "\"name\"") name = value.text;
    if (key == "\"arguments\"" || key == "\"parameters\"") arguments = value;
  };
  const absl::StatusOr<JsonText> scanned = ScanJson(object, 1, take);
  if (!scanned.ok() || !name.starts_with('"') || arguments.text.empty()) {
    return std::nullopt;
  }
  CallText call = {Unquoted(name), std::string(arguments.text),
                   last_key == "\"arguments\"" || last_key == "\"parameters\""};
  if (arguments.is_string()) call.arguments = Unquoted(arguments.text);
  const auto ignore = [](int, std::string_view, const JsonText&) {};
  const absl::StatusOr<JsonText> value = ScanJson(call.arguments, 0, ignore);
  const bool is_call = !call.name.empty() && value.ok() && value->is_object();
  return is_call ? std::optional(std::move(call)) : std::nullopt;
}

// The name in "NAME", "NAME[ARGS]" or "NAME[CALL_ID]ID[ARGS]".
std::string_view NameInHead(std::string_view head) {
  constexpr std::string_view kArgs = "[ARGS]", kCallId = "[CALL_ID]";
  const std::string_view name = head.substr(0, head.find('['));
  std::string_view rest = head.substr(name.size());
  if (rest.ends_with(kArgs)) rest.remove_suffix(kArgs.size());
  if (rest.starts_with(kCallId) && rest.find('[', 1) == rest.npos) rest = "";
  return rest.empty() ? name : "";
}

}  // namespace

ToolCallParser::ToolCallParser(ToolCallFormat format,
                               std::vector<std::string> tool_names)
    : format_(format),
      tool_names_(std::move(tool_names)),
      mark_(MarkOf(format)) {}

void ToolCallParser::Feed(std::string_view text, ToolCallText* out) {
  for (const char c : text) {
    while (!Step(c, out)) {
    }
  }
}

void ToolCallParser::Finish(ToolCallText* out) {
  if (!has_begun_) Reject(out);
}

bool ToolCallParser::Step(char c, ToolCallText* out) {
  switch (state_) {
    case State::kText:
      return StepText(c, out);
    case State::kOpening:
      return StepOpening(c, out);
    case State::kName:
      return StepName(c, out);
    case State::kObject:
      return StepObject(c, out);
    case State::kSeparator:
      return StepSeparator(c, out);
  }
  return true;
}

bool ToolCallParser::Reject(ToolCallText* out) {
  if (follows_call_) {
    const size_t first = pending_.find_first_not_of(kSpaces);
    pending_.erase(0, std::min(first, pending_.size()));
  }
  if (!pending_.empty()) follows_call_ = false;
  out->content += std::exchange(pending_, {});
  num_matched_ = 0;
  is_in_list_ = false;
  // After the first words of a Llama 3 answer that are no call, all is content.
  if (format_ == ToolCallFormat::kLlama3Json) mark_ = "";
  state_ = State::kText;
  return false;
}

bool ToolCallParser::StepText(char c, ToolCallText* out) {
  const bool is_llama = format_ == ToolCallFormat::kLlama3Json;
  if (num_matched_ == 0 && !mark_.empty()) {
    if (IsSpace(c)) {
      pending_ += c;
      return true;
    }
    if (is_llama && c == '{') {
      state_ = State::kOpening;
      return false;
    }
  }
  // No mark has its first character again.
  if (num_matched_ > 0 && c != mark_[num_matched_]) return Reject(out);
  if (mark_.empty() || c != mark_[num_matched_]) {
    Reject(out);
    out->content += c;
    follows_call_ = false;
    return true;
  }
  pending_ += c;
  if (++num_matched_ < mark_.size()) return true;
  has_mark_ = true;
  state_ = State::kOpening;
  return true;
}

bool ToolCallParser::StepOpening(char c, ToolCallText* out) {
  if (c == '{') {
    OpenObject(/*depth_of_arguments=*/2);
    return false;
  }
  const bool may_name = format_ == ToolCallFormat::kMistral && !is_in_list_;
  if (may_name && (IsAlnum(c) || c == '_')) {
    object_begin_ = pending_.size();
    state_ = State::kName;
    return false;
  }
  const bool opens_list = may_name && c == '[';
  if (!IsSpace(c) && !opens_list) return Reject(out);
  if (opens_list) is_in_list_ = true;
  pending_ += c;
  return true;
}

bool ToolCallParser::StepName(char c, ToolCallText* out) {
  constexpr std::string_view kMarks = "_-.[]";
  const std::string_view head =
      std::string_view(pending_).substr(object_begin_);
  if (c == '{') {
    std::string name(NameInHead(head));
    if (name.empty()) return Reject(out);
    OpenObject(/*depth_of_arguments=*/1);
    BeginCall(std::move(name), "", out);
    return false;
  }
  const bool is_good = IsAlnum(c) || kMarks.find(c) != kMarks.npos;
  if (!is_good || head.size() >= kMaxNameBytes) return Reject(out);
  pending_ += c;
  return true;
}

void ToolCallParser::OpenObject(size_t depth_of_arguments) {
  object_begin_ = pending_.size();
  depth_ = 0;
  depth_of_arguments_ = depth_of_arguments;
  is_in_string_ = is_escaped_ = false;
  has_tried_ = has_begun_ = has_ended_ = false;
  num_matched_ = 0;
  state_ = State::kObject;
}

bool ToolCallParser::StepObject(char c, ToolCallText* out) {
  if (!is_in_string_ && !IsStructural(c)) {
    if (!has_begun_) return Reject(out);
    EndObject(out);
    return false;
  }
  if (!has_begun_) {
    pending_ += c;
  } else if (!has_ended_) {
    AddToArguments(c, out);
  }
  if (is_escaped_) {
    is_escaped_ = false;
  } else if (is_in_string_ && c == '\\') {
    is_escaped_ = true;
  } else if (c == '"') {
    is_in_string_ = !is_in_string_;
  }
  if (is_in_string_) return true;
  if (c == '{' || c == '[') {
    ++depth_;
    if (c == '{' && depth_ == 2) TryBegin(out);
  } else if (c == '}' || c == ']') {
    --depth_;
    if (depth_ < depth_of_arguments_) has_ended_ = true;
    if (depth_ == 0) EndObject(out);
  }
  return true;
}

void ToolCallParser::TryBegin(ToolCallText* out) {
  // Once: a head is read as a whole.
  if (has_begun_ || std::exchange(has_tried_, true)) return;
  const std::string head = pending_.substr(object_begin_) + "}}";
  const std::optional<CallText> call = ReadCallText(head);
  if (!call || !call->ends_with_arguments || !MayCall(call->name)) return;
  BeginCall(call->name, "{", out);
}

void ToolCallParser::BeginCall(std::string name, std::string arguments,
                               ToolCallText* out) {
  has_begun_ = true;
  pending_.clear();
  out->calls.push_back({num_calls_++, std::move(name), std::move(arguments)});
}

void ToolCallParser::AddToArguments(char c, ToolCallText* out) {
  const size_t call_idx = num_calls_ - 1;
  if (out->calls.empty() || out->calls.back().call_idx != call_idx) {
    out->calls.push_back({.call_idx = call_idx});
  }
  out->calls.back().arguments += c;
}

void ToolCallParser::EndObject(ToolCallText* out) {
  if (!has_begun_) {
    std::optional<CallText> call =
        ReadCallText(std::string_view(pending_).substr(object_begin_));
    if (!call || !MayCall(call->name)) {
      Reject(out);
      return;
    }
    BeginCall(std::move(call->name), std::move(call->arguments), out);
  }
  has_begun_ = false;
  follows_call_ = true;
  num_matched_ = 0;
  state_ = State::kSeparator;
}

bool ToolCallParser::StepSeparator(char c, ToolCallText* out) {
  switch (format_) {
    case ToolCallFormat::kNone:
      return Reject(out);
    case ToolCallFormat::kHermes:
      if (num_matched_ == 0 && IsSpace(c)) break;
      if (c != kHermesEnd[num_matched_]) return Reject(out);
      if (++num_matched_ < kHermesEnd.size()) break;
      pending_.clear();
      num_matched_ = 0;
      state_ = State::kText;
      return true;
    case ToolCallFormat::kLlama3Json:
      if (c == '{') {
        state_ = State::kOpening;
        return false;
      }
      if (IsSpace(c) || c == ';') break;
      return Reject(out);
    case ToolCallFormat::kMistral:
      if (!is_in_list_) return Reject(out);
      if (IsSpace(c)) break;
      if (c == ']') {
        is_in_list_ = false;
        pending_.clear();
        state_ = State::kText;
        return true;
      }
      if (c != ',') return Reject(out);
      state_ = State::kOpening;
      break;
  }
  pending_ += c;
  return true;
}

bool ToolCallParser::MayCall(std::string_view name) const {
  if (format_ != ToolCallFormat::kLlama3Json || has_mark_) return true;
  return std::ranges::find(tool_names_, name) != tool_names_.end();
}

ToolCallText ParseToolCalls(std::string_view text, ToolCallFormat format,
                            const std::vector<std::string>& tool_names) {
  ToolCallParser parser(format, tool_names);
  ToolCallText found;
  parser.Feed(text, &found);
  parser.Finish(&found);
  return found;
}

}  // namespace espalier
