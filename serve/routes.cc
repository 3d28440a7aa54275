#include "serve/routes.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/spelling.h"
#include "base/status.h"
#include "serve/item_answers.h"
#include "serve/job_answers.h"
#include "serve/route_answers.h"
#include "serve/speech_calls.h"

namespace espalier::serve {
namespace {

using Needs = Route::Needs;
using Takes = Route::Takes;

constexpr std::string_view kV1 = "/v1";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Decodes %XX in a segment of a path.
std::string Decoded(std::string_view segment) {
  std::string text;
  for (size_t i = 0; i < segment.size(); ++i) {
    const bool is_escape = segment[i] == '%' && i + 2 < segment.size() &&
                           HexDigit(segment[i + 1]) >= 0 &&
                           HexDigit(segment[i + 2]) >= 0;
    if (!is_escape) {
      text += segment[i];
      continue;
    }
    text += static_cast<char>(HexDigit(segment[i + 1]) * 16 +
                              HexDigit(segment[i + 2]));
    i += 2;
  }
  return text;
}

// True if `path` matches `pattern`; `*id` is the part that matches {id}, if the
// pattern has one.
bool Matches(std::string_view pattern, std::string_view path, std::string* id) {
  constexpr std::string_view kId = "{id}";
  const size_t at = pattern.find(kId);
  if (at == pattern.npos) return pattern == path;
  const std::string_view end = pattern.substr(at + kId.size());
  if (!path.starts_with(pattern.substr(0, at)) || !path.ends_with(end) ||
      path.size() <= at + end.size()) {
    return false;
  }
  *id = path.substr(at, path.size() - at - end.size());
  // A trailing {id} may contain slashes, as names of models do: "org/model".
  if (!end.empty() && id->find('/') != id->npos) return false;
  *id = Decoded(*id);
  return true;
}

}  // namespace

std::span<const Route> Routes() {
  static constexpr Route kRoutes[] = {
      {"GET", "/health", &routes::Health, Needs::kNothing},
      {"GET", "/ping", &routes::Health},
      {"GET", "/ready", &routes::Ready},
      {"GET", "/version", &routes::Version},
      {"GET", "/metrics", &routes::Metrics},
      {"GET", "/load", &routes::ServerLoad},
      {"GET", "/get_load", &routes::Load},
      {"GET", "/", &routes::Page},
      {"GET", "/v1/models", &routes::Models, Needs::kModel},
      {"GET", "/v1/models/{id}", &routes::Model, Needs::kModel},
      {"GET", "/v1/requests/{id}/trace", &routes::Trace, Needs::kModel},
      {"POST", "/tokenize", &routes::Tokenize, Needs::kModel},
      {"POST", "/detokenize", &routes::Detokenize, Needs::kModel},
      {"GET", "/tokenizer_info", &routes::TokenizerInfo, Needs::kModel},
      {"POST", "/reset_prefix_cache", &routes::ResetPrefixCache, Needs::kModel,
       Takes::kNothing, /*is_control=*/true},
      {"POST", "/update_weights_from_disk", &routes::UpdateWeights,
       Needs::kModel, Takes::kJson, /*is_control=*/true},
      {"PUT", "/v1/items/{id}", &routes::PutItems, Needs::kModel, Takes::kLines,
       /*is_control=*/true},
      {"DELETE", "/v1/items/{id}", &routes::RemoveItems, Needs::kModel,
       Takes::kNothing, /*is_control=*/true},
      {"GET", "/v1/items", &routes::ListItems, Needs::kModel},
      {"POST", "/abort_requests", &routes::AbortRequests, Needs::kModel},
      {"POST", "/v1/completions/render", &routes::RenderCompletions,
       Needs::kModel},
      {"POST", "/v1/chat/completions/render", &routes::RenderChatCompletions,
       Needs::kModel},
      {"POST", "/v1/completions", &routes::Completions, Needs::kGeneration},
      {"POST", "/v1/chat/completions", &routes::ChatCompletions,
       Needs::kGeneration},
      {"POST", "/v1/responses", &routes::Responses, Needs::kGeneration},
      {"POST", "/v1/audio/transcriptions", &routes::Transcriptions,
       Needs::kGeneration, Takes::kAudioForm},
      {"POST", "/v1/audio/translations", &routes::Translations,
       Needs::kGeneration, Takes::kAudioForm},
      {"POST", "/v1/files", &routes::AddFile, Needs::kClients,
       Takes::kFileForm},
      {"GET", "/v1/files", &routes::ListFiles},
      {"GET", "/v1/files/{id}/content", &routes::FileContent},
      {"GET", "/v1/files/{id}", &routes::File},
      {"DELETE", "/v1/files/{id}", &routes::RemoveFile},
      {"POST", "/v1/batches", &routes::CreateBatch},
      {"GET", "/v1/batches", &routes::ListBatches},
      {"POST", "/v1/batches/{id}/cancel", &routes::CancelBatch, Needs::kClients,
       Takes::kNothing},
      {"GET", "/v1/batches/{id}", &routes::Batch},
      {"POST", "/inference/v1/generate", &routes::GenerateTokens,
       Needs::kGeneration},
      {"POST", "/generative_scoring", &routes::Score, Needs::kGeneration},
  };
  return kRoutes;
}

std::string RouteHint(std::string_view path) {
  constexpr size_t kLongest = 64;  // comparing takes time
  if (path.size() > kLongest) return "";
  // Other engines' routes for what is here, by how they end.
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"/chat/completions", "/v1/chat/completions"},
      {"/completions", "/v1/completions"},
      {"/models", "/v1/models"},
      {"/api/generate", "/v1/completions"},
      {"/api/chat", "/v1/chat/completions"},
      {"/audio/transcribe", "/v1/audio/transcriptions"},
      {"/asr", "/v1/audio/transcriptions"},
      {"/inference", "/v1/audio/transcriptions"},
      {"/api/tags", "/v1/models"},
      {"/generate_stream", "/v1/completions with stream true"},
      {"/v1/messages", "/v1/chat/completions"},
      {"/completion", "/v1/completions"},
      {"/flush_cache", "/reset_prefix_cache"},
      {"/abort_request", "/abort_requests"},
      {"/healthz", "/health"},
      {"/livez", "/health"},
      {"/readyz", "/ready"},
      {"/server_info", "/v1/models"},
      {"/get_model_info", "/v1/models"}};
  std::vector<std::string_view> paths;
  for (const Route& route : Routes()) paths.push_back(route.path);
  std::string hint = DidYouMean(path, paths);
  if (!hint.empty()) return hint;
  for (const auto& [end, meant] : kOthers) {
    if (path.ends_with(end)) return Concat("; did you mean ", meant, "?");
  }
  return "";
}

const Route* FindRoute(const http::Request& request, std::string* id,
                       std::string* allowed) {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : Routes()) {
    const bool is_it =
        Matches(route.path, request.path, id) ||
        // A base URL may lack it.
        (route.path.starts_with(kV1) &&
         Matches(route.path.substr(kV1.size()), request.path, id));
    if (!is_it) continue;
    if (route.method == method) return &route;
    absl::StrAppend(allowed, allowed->empty() ? "" : ", ",
                    ToAbsl(route.method));
    if (route.method == "GET") *allowed += ", HEAD";
  }
  return nullptr;
}

}  // namespace espalier::serve
