#include "openai/constrain_tool_calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/read_tools.h"

namespace espalier::openai {
namespace {

constexpr std::string_view kOfCalls = "constraint";

// The schema of a function that declares no parameters, as OpenAI reads it.
constexpr char kNoParameters[] =
    R"({"type":"object","properties":{},"additionalProperties":false})";

const json::object& FunctionOf(const json::value& tool) {
  return tool.at("function").get_object();
}

std::string_view NameOf(const json::value& tool) {
  return std::string_view(FunctionOf(tool).at("name").get_string());
}

bool IsStrict(const json::value& tool) {
  const json::value* const strict = FunctionOf(tool).if_contains("strict");
  return strict != nullptr && *strict == true;
}

absl::Status CheckNames(Api api, const json::array& tools) {
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < tools.size(); ++i) {
    const auto [place, is_new] = places.emplace(NameOf(tools[i]), i);
    if (is_new) continue;
    return InvalidField(
        FieldName{Concat("tools[", i, "]")}, MemberOfFunction(api),
        ".name must not be that of tools[", place->second,
        "] where calls are enforced", Got(ShownInQuotes(NameOf(tools[i]))));
  }
  return absl::OkStatus();
}

// Appends the function of a tool as a member of the constraint.
void AppendFunction(const json::value& tool, bool has_schema,
                    std::string* out) {
  *out += "{\"name\":";
  AppendJson(NameOf(tool), out);
  const json::value* const schema = FunctionOf(tool).if_contains("parameters");
  if (has_schema) {
    *out += ",\"parameters\":";
    *out += schema == nullptr || schema->is_null() ? kNoParameters
                                                   : WriteJson(*schema);
  }
  *out += '}';
}

// True if the constraint is that of the format of the answer's text.
bool HasFormat(const Call& call) {
  const std::string_view name = call.NameOf(kOfCalls);
  return call.params.constraint &&
         (name == "response_format" ||
          (call.api == Api::kResponses && name == "text"));
}

// The schema of a response_format, which holds for text beside calls; nullopt
// if there is none, or the text cannot be told from a call.
std::optional<std::string> SchemaOfText(const Call& call) {
  const bool has_marks = call.tool_calls.format == ToolCallFormat::kHermes ||
                         call.tool_calls.format == ToolCallFormat::kMistral;
  if (!has_marks || !HasFormat(call)) return std::nullopt;
  return call.params.constraint->json_schema;
}

// True if a field restricts the tokens of the answer, as no constraint may in
// addition.
bool RestrictsTokens(const Call& call) {
  const GenerationParams& params = call.params;
  const bool has_other = params.constraint && !SchemaOfText(call);
  return has_other || params.allowed_sequences || params.allowed_token_ids ||
         params.forced_bos_token_id || !params.forced_eos_token_id.empty();
}

// Removes a constraint that gives way to that of the calls.
// Errors: kInvalidArgument if there is one that does not.
absl::Status TakeConstraint(Call* call) {
  const std::string_view name = call->NameOf(kOfCalls);
  if (call->params.constraint && !HasFormat(*call)) {
    return InvalidField("`tool_choice` and ", FieldName{name},
                        " both say what the text of the answer is",
                        Got(ShownChoice(call->tool_choice)));
  }
  if (call->params.constraint && call->tool_choice.must_call()) {
    call->warnings.push_back(Concat(name == "text" ? "text.format" : name,
                                    " has no effect: with tool_choice ",
                                    ShownChoice(call->tool_choice),
                                    " the answer is a call"));
  }
  std::erase_if(call->given, [](const GivenParam& given) {
    return given.param == kOfCalls;
  });
  call->constraint_path.clear();
  return absl::OkStatus();
}

// Returns the field that has calls enforced; empty if there is none.
std::string_view EnforcingField(const Call& call, const json::array& tools) {
  const ToolChoice& choice = call.tool_choice;
  if (choice.must_call() || choice.names) return "tool_choice";
  const bool has_rules =
      std::ranges::any_of(tools, IsStrict) || SchemaOfText(call);
  return has_rules ? "tools" : "";
}

}  // namespace

absl::Status ConstrainToolCalls(Call* call) {
  if (!call->chat || !call->chat->tools.is_array()) return absl::OkStatus();
  const ToolChoice& choice = call->tool_choice;
  const json::array& tools = call->chat->tools.get_array();
  const std::string_view field = EnforcingField(*call, tools);
  if (field.empty()) return absl::OkStatus();
  const bool must_call = choice.must_call();
  if (!must_call && RestrictsTokens(*call)) return absl::OkStatus();
  if (call->tool_calls.format == ToolCallFormat::kNone) {
    if (must_call) {
      return InvalidField(
          "`tool_choice` must be \"auto\" or \"none\" with this model, whose "
          "format of calls is not known (--tool-call-parser)",
          Got(ShownChoice(call->tool_choice)));
    }
    call->warnings.push_back(
        Concat("calls of tools are not enforced, which ",
               field == "tools" ? "a strict function of tools" : field,
               " asks for: the model's format of calls is not known "
               "(--tool-call-parser)"));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckNames(call->api, tools));
  std::string text = must_call ? "false" : "true";
  std::string text_path;
  if (const auto schema = SchemaOfText(*call); schema && !must_call) {
    text = Concat(R"({"json_schema":)", *schema, "}");
    text_path = call->constraint_path;
  }
  call->calls_may_be_text = text == "true";
  RETURN_IF_ERROR(TakeConstraint(call));
  const bool is_parallel =
      call->parallel_tool_calls && choice.kind != ToolChoice::Kind::kFunction;
  std::string rules =
      Concat(R"({"format":")", espalier::NameOf(call->tool_calls.format),
             R"(","text":)", text, R"(,"parallel":)",
             is_parallel ? "true" : "false", R"(,"functions":[)");
  const auto names = choice.names.value_or(std::vector<std::string>());
  const std::set<std::string_view> allowed(names.begin(), names.end());
  call->constrained_tools.clear();
  for (size_t i = 0; i < tools.size(); ++i) {
    if (choice.names && !allowed.contains(NameOf(tools[i]))) continue;
    if (!call->constrained_tools.empty()) rules += ',';
    AppendFunction(tools[i], must_call || IsStrict(tools[i]), &rules);
    call->constrained_tools.push_back(i);
  }
  rules += "]}";
  call->params.constraint = ConstraintParams{.tool_calls = std::move(rules)};
  call->given.push_back({kOfCalls, field});
  call->constraint_path = std::move(text_path);
  return absl::OkStatus();
}

}  // namespace espalier::openai
