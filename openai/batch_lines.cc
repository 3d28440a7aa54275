#include "openai/batch_lines.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/error.h"

namespace espalier::openai {
namespace {

struct Endpoint {
  std::string_view path;
  Api api;
};
constexpr Endpoint kEndpoints[] = {
    {"/v1/completions", Api::kCompletions},
    {"/v1/chat/completions", Api::kChat},
    {"/v1/responses", Api::kResponses},
};

constexpr size_t kMaxCustomIdBytes = 512;

void IgnoreMember(int, std::string_view, const JsonText&) {}

// "batch_7" has the results "batch_req_7_0" and so on.
std::string ResultPrefix(std::string_view batch_id) {
  return Concat(R"({"id":"batch_req_)", batch_id.substr(batch_id.find('_') + 1),
                "_");
}

// The members of a line.
struct LineFields {
  std::optional<std::string> custom_id;
  std::optional<std::string> method;
  std::optional<std::string> url;
  std::string_view body;
};

// Errors: kInvalidArgument with the member as its `param`.
absl::Status ReadLineField(const std::string& key, const JsonText& value,
                           LineFields* fields) {
  if (key == "body") {
    if (!value.is_object()) {
      return RefuseField(
          key, Concat("body must be an object, got ", Shown(value.text)));
    }
    fields->body = value.text;
    return absl::OkStatus();
  }
  std::optional<std::string>* const text = key == "custom_id"
                                               ? &fields->custom_id
                                           : key == "method" ? &fields->method
                                           : key == "url"    ? &fields->url
                                                             : nullptr;
  if (text == nullptr) {
    return RefuseField(
        key, Concat(ShownInQuotes(key), " is not a member of a batch's line"));
  }
  if (!value.is_string()) {
    return RefuseField(
        key, Concat(key, " must be a string, got ", Shown(value.text)));
  }
  *text = Unquoted(value.text);
  return absl::OkStatus();
}

absl::Status MissingMember(std::string_view name) {
  return RefuseField(name, Concat(name, " must be there, got nothing"));
}

// Errors: as ReadLineField.
absl::Status CheckFields(const LineFields& fields, std::string_view endpoint) {
  if (!fields.custom_id) return MissingMember("custom_id");
  if (fields.custom_id->empty() ||
      fields.custom_id->size() > kMaxCustomIdBytes) {
    return RefuseField("custom_id",
                       Concat("custom_id must have 1 to ", kMaxCustomIdBytes,
                              " bytes, got ", fields.custom_id->size()));
  }
  if (!fields.method) return MissingMember("method");
  if (fields.method != "POST") {
    return RefuseField("method", Concat("method must be \"POST\", got ",
                                        ShownInQuotes(*fields.method)));
  }
  if (!fields.url) return MissingMember("url");
  if (fields.url != endpoint) {
    return RefuseField(
        "url", Concat("url must be the batch's endpoint, ", endpoint, ", got ",
                      ShownInQuotes(*fields.url)));
  }
  if (fields.body.empty()) return MissingMember("body");
  return absl::OkStatus();
}

}  // namespace

std::optional<Api> FindBatchApi(std::string_view endpoint) {
  const auto* const found =
      std::ranges::find(kEndpoints, endpoint, &Endpoint::path);
  if (found == std::end(kEndpoints)) return std::nullopt;
  return found->api;
}

absl::Status CheckBatchEndpoint(std::string_view endpoint) {
  if (FindBatchApi(endpoint)) return absl::OkStatus();
  std::string paths;
  for (const Endpoint& known : kEndpoints) {
    paths += Concat(paths.empty() ? "" : ", ", known.path);
  }
  return InvalidArgument("endpoint must be one of ", paths, ", got ",
                         ShownInQuotes(endpoint));
}

std::optional<BatchCall> ReadBatchCall(std::string_view line,
                                       std::string_view endpoint,
                                       BatchLineError* error) {
  const absl::StatusOr<JsonText> json = ScanJson(line, 0, IgnoreMember);
  if (!json.ok() || !json->is_object()) {
    *error = {"invalid_json_line", json.ok() ? "the line is no JSON object"
                                             : Message(json.status())};
    return std::nullopt;
  }
  LineFields fields;
  absl::Status status;
  for (JsonItems items(json->text); status.ok() && items.Next();) {
    status = ReadLineField(Unquoted(items.key()), {items.value()}, &fields);
  }
  if (status.ok()) status = CheckFields(fields, endpoint);
  if (!status.ok()) {
    *error = {"invalid_request", Message(status), ErrorOf(status).param};
    return std::nullopt;
  }
  return BatchCall{*std::move(fields.custom_id), fields.body};
}

std::string WriteBatchResult(std::string_view batch_id, int64_t line,
                             std::string_view custom_id,
                             const BatchOutcome& outcome) {
  std::string json = ResultPrefix(batch_id);
  json += Concat(line, R"(","custom_id":)");
  AppendJson(custom_id, &json);
  if (outcome.http_status == 0) {
    json += R"(,"response":null,"error":{"code":)";
    AppendJson(std::string_view(outcome.error.code), &json);
    json += R"(,"message":)";
    AppendJson(std::string_view(outcome.error.message), &json);
    json += "}}\n";
    return json;
  }
  json += Concat(R"(,"response":{"status_code":)", outcome.http_status,
                 R"(,"request_id":)");
  AppendJson(std::string_view(outcome.request_id), &json);
  json += Concat(R"(,"body":)", outcome.body, "},\"error\":null}\n");
  return json;
}

std::optional<int64_t> LineOfBatchResult(std::string_view batch_id,
                                         std::string_view text) {
  const std::string prefix = ResultPrefix(batch_id);
  if (!text.starts_with(prefix)) return std::nullopt;
  const std::string_view rest = text.substr(prefix.size());
  int64_t line = 0;
  if (!absl::SimpleAtoi(ToAbsl(rest.substr(0, rest.find('"'))), &line) ||
      line < 0 || !ScanJson(text, 0, IgnoreMember).ok()) {
    return std::nullopt;
  }
  return line;
}

}  // namespace espalier::openai
