#include "openai/resolve_params.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/page_count.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/call_fields.h"
#include "openai/error.h"
#include "openai/object_fields.h"
#include "request/decoder_prompt.h"
#include "request/json/param_fields.h"
#include "request/validate_params.h"

namespace espalier::openai {
namespace {

constexpr int64_t kCompletionTokens = 16;

// Kind of search that the fields of a call select.
enum class SearchKind {
  kOpen,
  kBeams,
  kDraws,
  // No sampling; beams if another source sets them.
  kNoDraws,
};

bool FiltersDraws(const GenerationParams& params) {
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0 ||
         params.typical_p < 1;
}

SearchKind SearchOf(const Call& call) {
  const GenerationParams& params = call.params;
  if (IsBeamSearch(params)) return SearchKind::kBeams;
  if (call.Gives("do_sample") && !params.do_sample) return SearchKind::kNoDraws;
  const bool is_hot = call.Gives("temperature") && params.temperature > 0;
  const bool draws =
      params.do_sample || params.best_of || is_hot || FiltersDraws(params);
  return draws ? SearchKind::kDraws : SearchKind::kOpen;
}

// Follows generation_defaults.cc: bad words have no tokens yet, a stop may
// still be open, and more sequences than a step has room for are reported later
// as an error.
bool IsValid(const ModelDescription& model, int64_t num_prompt_tokens,
             GenerationParams params) {
  params.bad_words.clear();
  params.include_stop = false;
  return ValidateParams(WithAnyBeams(model), num_prompt_tokens, &params).ok();
}

// If num_beams is a default, raises it to num_return_sequences.
void SetDefault(const std::pair<std::string, std::string>& value,
                GenerationParams* params) {
  const absl::Status status = ReadParam(ParamNamed(value.first), value.first,
                                        JsonText{value.second}, params);
  CHECK(status.ok()) << Message(status);
  if (value.first != "num_beams" || params->num_beams == 1) return;
  params->num_beams = std::max(params->num_beams, params->num_return_sequences);
}

// Returns the largest number of new tokens whose worst case fits into all pages
// (WorstCasePages) with no other request running; 0 if not even one does.
int64_t RoomInPages(const ModelDescription& model, int64_t num_prompt_tokens,
                    const GenerationParams& params) {
  const int64_t page_size = model.page_size;
  int64_t num_shared = NumContextTokens(model, num_prompt_tokens, params);
  if (model.encoder) {
    num_shared += NumPages(num_prompt_tokens, model.page_size) * page_size;
  }
  const int64_t width = std::max({params.num_beams, params.num_return_sequences,
                                  params.best_of.value_or(1)});
  const int64_t num_shared_pages = num_shared / page_size;
  const int64_t num_pages_each =
      (int64_t{model.num_pages} - num_shared_pages) / width;
  // The last token that is generated is not fed.
  const int64_t room =
      (num_shared_pages + num_pages_each) * page_size - num_shared + 1;
  // The first token takes nothing beside the prompt.
  const bool fits_one = num_shared <= model.num_pages * page_size;
  return std::max<int64_t>(room, fits_one ? 1 : 0);
}

// The params of a call while defaults are taken.
class Resolver {
 public:
  Resolver(const Call& call, const ModelDescription& model,
           int64_t num_prompt_tokens)
      : call_(call),
        model_(model),
        num_prompt_tokens_(num_prompt_tokens),
        resolved_{call.params, {}} {
    for (const GivenParam& param : call.given) given_.push_back(param.param);
    // The tokens of a text that the call gives are its own.
    if (!IsOpen("decoder_prompt")) given_.push_back("decoder_prompt_tokens");
  }

  // Decides between beams and draws.
  void Settle(const ServerDefaults& server, int64_t model_beams);
  void Take(const ServerDefaults& server);
  void Take(const GenerationDefaults& defaults);
  // Lowers max_new_tokens of the model's defaults to the server's limit.
  void LimitMaxTokens();
  // include_stop without stops, unless that is what the call says.
  void DropIncludeStop();
  // As many tokens as there is room for, in the context and in all pages.
  void TakeMaxTokens();

  ResolvedParams resolved() && { return std::move(resolved_); }

 private:
  bool IsOpen(std::string_view param) const {
    return std::ranges::find(given_, param) == given_.end();
  }
  // False if the request would be a bad one.
  bool TakeValues(std::span<const std::pair<std::string, std::string>> values);
  void MarkTaken(const std::pair<std::string, std::string>& value);

  GenerationParams& params() { return resolved_.params; }

  const Call& call_;
  const ModelDescription& model_;
  const int64_t num_prompt_tokens_;
  ResolvedParams resolved_;
  std::vector<std::string_view> given_;
};

void Resolver::Settle(const ServerDefaults& server, int64_t model_beams) {
  SearchKind search = SearchOf(call_);
  const bool is_by_server = search == SearchKind::kOpen;
  if (is_by_server) search = SearchOf(server.call());
  // use_beam_search false, num_beams 1. Greedy search has no beams either, and
  // one answer.
  const bool refuses_beams = is_by_server && !IsOpen("num_beams");
  const bool is_greedy =
      search == SearchKind::kNoDraws && params().num_return_sequences == 1;
  if (refuses_beams && !is_greedy) search = SearchKind::kDraws;
  if (search == SearchKind::kOpen) {
    // num_beams 1 of the server takes the place of the model's beams.
    const bool is_overridden = server.call().Gives("num_beams");
    if (model_beams > 1 && !is_overridden) return;
    search = SearchKind::kDraws;
  }
  const bool draws = search == SearchKind::kDraws;
  if (draws && IsOpen("num_beams")) {
    params().num_beams = 1;
    given_.push_back("num_beams");
  }
  if (IsOpen("do_sample")) {
    params().do_sample =
        draws || (is_by_server && server.call().params.do_sample);
    given_.push_back("do_sample");
  }
}

bool Resolver::TakeValues(
    std::span<const std::pair<std::string, std::string>> values) {
  GenerationParams with = params();
  for (const auto& value : values) SetDefault(value, &with);
  if (!IsValid(model_, num_prompt_tokens_, with)) return false;
  params() = std::move(with);
  for (const auto& value : values) MarkTaken(value);
  return true;
}

void Resolver::MarkTaken(const std::pair<std::string, std::string>& value) {
  given_.push_back(ParamNamed(value.first).name);
  resolved_.defaults.push_back(value);
}

void Resolver::Take(const ServerDefaults& server) {
  NamedValues open;
  for (const auto& value : server.values()) {
    if (IsOpen(value.first)) open.push_back(value);
  }
  if (open.empty() || TakeValues(open)) return;
  for (const auto& value : open) TakeValues({&value, 1});
  // As TakeDefaults: the error of an invalid call describes the search that it
  // would have had.
  const auto beams = std::ranges::find(
      open, "num_beams", &std::pair<std::string, std::string>::first);
  const bool is_left = beams != open.end() && IsOpen("num_beams");
  if (!is_left || ValidateSearch(model_, params()).ok()) return;
  SetDefault(*beams, &params());
  MarkTaken(*beams);
}

void Resolver::Take(const GenerationDefaults& defaults) {
  const int64_t n = params().num_return_sequences;
  const int64_t num_beams = defaults.params.num_beams;
  if (num_beams > 1 && n > num_beams && IsOpen("num_beams")) {
    params().num_beams = n;
    given_.push_back("num_beams");
    resolved_.defaults.emplace_back("num_beams", Concat(n));
  }
  NamedValues taken =
      TakeDefaults(defaults, given_, model_, num_prompt_tokens_, &params());
  std::ranges::move(taken, std::back_inserter(resolved_.defaults));
  if (IsOpen("max_new_tokens")) LimitMaxTokens();
}

void Resolver::LimitMaxTokens() {
  const int64_t limit = call_.limits.max_tokens;
  if (params().max_new_tokens <= limit) return;
  params().max_new_tokens = limit;
  std::erase_if(resolved_.defaults, [](const auto& value) {
    return value.first == "max_new_tokens" || value.first == "max_length";
  });
  resolved_.defaults.emplace_back("max_new_tokens", Concat(limit));
}

void Resolver::DropIncludeStop() {
  static constexpr std::string_view kIncludeStop = "include_stop";
  // By vLLM's name it may stand without stops.
  const bool is_strict =
      call_.Gives(kIncludeStop) && call_.NameOf(kIncludeStop) == kIncludeStop;
  if (!params().stop.empty() || is_strict) return;
  params().include_stop = false;
  std::erase_if(resolved_.defaults,
                [](const auto& value) { return value.first == kIncludeStop; });
}

void Resolver::TakeMaxTokens() {
  if (params().max_new_tokens || params().allowed_sequences) return;
  int64_t room =
      std::min(model_.max_context -
                   NumContextTokens(model_, num_prompt_tokens_, params()),
               call_.limits.max_tokens);
  if (call_.api == Api::kCompletions) room = std::min(room, kCompletionTokens);
  const int64_t in_pages = RoomInPages(model_, num_prompt_tokens_, params());
  if (in_pages < room) {
    // If not even one token fits, the engine refuses the request.
    room = std::max<int64_t>(in_pages, 1);
    // Listed as a default, because the call does not determine it.
    if (in_pages >= 1) {
      resolved_.defaults.emplace_back("max_new_tokens", Concat(room));
    }
  }
  if (room >= 1) params().max_new_tokens = room;
}

}  // namespace

ResolvedParams ResolveParams(const Call& call, const ServerDefaults& server,
                             const GenerationDefaults& model_defaults,
                             const ModelDescription& model,
                             int64_t num_prompt_tokens) {
  Resolver resolver(call, model, num_prompt_tokens);
  resolver.Settle(server, model_defaults.params.num_beams);
  resolver.Take(server);
  resolver.Take(model_defaults);
  resolver.DropIncludeStop();
  resolver.TakeMaxTokens();
  return std::move(resolver).resolved();
}

int64_t MostNewTokens(const ModelDescription& model, const Limits& limits) {
  constexpr int kShortestPrompt = 1;  // tokens
  const GenerationParams params;
  const int64_t in_context =
      model.max_context - NumContextTokens(model, kShortestPrompt, params);
  const int64_t in_pages = RoomInPages(model, kShortestPrompt, params);
  return std::max<int64_t>(1,
                           std::min({in_context, in_pages, limits.max_tokens}));
}

std::string SearchWarning(const Call& call,
                          const GenerationDefaults& model_defaults) {
  constexpr std::string_view kDoSample = "do_sample";
  std::vector<std::string_view> given;
  std::string_view asking = "num_beams";
  for (const auto& [param, name] : call.given) {
    // The field that selects the search gives do_sample false.
    const bool asks = param == kDoSample && name != kDoSample;
    if (asks) asking = name;
    if (!asks) given.push_back(param);
  }
  return SearchNote(model_defaults, given, call.params, asking,
                    "do_sample true");
}

absl::Status CheckRoom(const Call& call, const GenerationParams& params,
                       const ModelDescription& model) {
  constexpr std::string_view kN = "num_return_sequences";
  const bool makes_beams =
      IsBeamSearch(params) && call.Gives(kN) && !call.Gives("num_beams");
  const int64_t n = call.params.num_return_sequences;
  if (!makes_beams || n <= model.limits.max_beams) return absl::OkStatus();
  return InvalidField(FieldName{call.NameOf(kN)}, " must be at most ",
                      Limit(model.limits.max_beams),
                      " (--max-beams, what a step has room for)", Got(n));
}

absl::Status ServerDefaults::Check(const ModelDescription& model) const {
  GenerationParams params =
      ResolveParams(Call(), ServerDefaults(), {}, model, 1).params;
  params.num_beams = 1;
  // An open search runs as samples, whose number is limited separately.
  const SearchKind search = SearchOf(call_);
  params.do_sample =
      search == SearchKind::kDraws || search == SearchKind::kOpen;
  for (const auto& value : values_) SetDefault(value, &params);
  params.bad_words.clear();
  if (params.stop.empty()) params.include_stop = false;
  return InWordsOf(call_, ValidateParams(model, 1, &params));
}

}  // namespace espalier::openai
