#include "request/resolve_defaults.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/page_count.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/decoder_prompt.h"
#include "request/param_fields.h"
#include "request/validate_search.h"

namespace espalier {
namespace {

using NamedValue = NamedValues::value_type;

bool Names(const ServerValues& server, std::string_view param) {
  return std::ranges::find(server.values, param, &NamedValue::first) !=
         server.values.end();
}

// Kind of search that the fields of a level select.
enum class SearchKind {
  kOpen,
  kBeams,
  kDraws,
  // No sampling; beams if another level sets them.
  kNoDraws,
};

SearchKind SearchOf(const GenerationParams& params, bool gives_do_sample,
                    bool gives_temperature) {
  if (IsBeamSearch(params)) return SearchKind::kBeams;
  if (gives_do_sample && !params.do_sample) return SearchKind::kNoDraws;
  const bool is_hot = gives_temperature && params.temperature > 0;
  const bool draws =
      params.do_sample || params.best_of || is_hot || HasFilters(params);
  return draws ? SearchKind::kDraws : SearchKind::kOpen;
}

SearchKind SearchOf(const ServerValues& server) {
  return SearchOf(server.params, Names(server, "do_sample"),
                  Names(server, "temperature"));
}

int64_t MostSequences(const GenerationParams& params) {
  return std::max(
      {params.num_beams, params.num_beam_groups, params.num_return_sequences});
}

// Sets all large params of `to` to those of `from`, and include_stop, which
// belongs to one of them.
void CopyLargeParams(const GenerationParams& from, GenerationParams* to) {
  for (const ParamField& field : ParamFields()) {
    if (field.Is(kLarge)) field.member.copy(from, to);
  }
  to->include_stop = from.include_stop;
}

// True if `param` is redundant with a constraint, which determines how the
// output begins and ends, or with allowed_sequences, which also determine how
// long it can be.
bool IsOfConstraint(std::string_view param, const GenerationParams& params) {
  if (!params.constraint && !params.allowed_sequences) return false;
  if (param == "forced_bos_token_id" || param == "forced_eos_token_id") {
    return true;
  }
  return params.allowed_sequences &&
         (param == "stop" || param == "max_new_tokens" ||
          param == "min_new_tokens");
}

// The params of a request while it takes defaults, level by level.
class Resolver {
 public:
  // `api`: null as in DefaultSources.
  Resolver(GenerationParams params, std::span<const std::string_view> given,
           const ModelDescription& model, int64_t num_prompt_tokens,
           const ApiDefaults* api)
      : model_(model),
        api_(api),
        num_prompt_tokens_(num_prompt_tokens),
        given_(given.begin(), given.end()),
        resolved_{.params = std::move(params)} {
    if (!IsOpen("decoder_prompt")) given_.push_back("decoder_prompt_tokens");
    keeps_speculate_ = !IsOpen("speculate");
    keeps_include_stop_ =
        !IsOpen("include_stop") && (api == nullptr || !api->drops_include_stop);
  }

  // Finds the length that the request will have, for the checks of params that
  // depend on it.
  void FindMaxTokens(const ServerValues& server,
                     const GenerationDefaults& defaults);
  // Decides between beams and draws, by the rules of ApiDefaults.
  void SettleSearch(const ServerValues& server, int64_t model_beams);
  void Take(const ServerValues& server);
  void Take(const GenerationDefaults& defaults);
  // Drops include_stop of a default, or of the API, where there are no stops.
  void DropIncludeStop();
  // Drops speculation of a default that the search of the request excludes.
  void DropSpeculation();
  // As many tokens as there is room for, up to the API's default.
  void SetMaxTokens();

  ResolvedParams resolved() && { return std::move(resolved_); }

 private:
  bool IsOpen(std::string_view param) const {
    return std::ranges::find(given_, param) == given_.end();
  }
  // Returns the largest max_new_tokens; below 1 if there is no room.
  int64_t MostNewTokens(const GenerationParams& params) const;
  // True if the request with these params passes ValidateParams.
  bool IsValid(const ModelDescription& model, GenerationParams params) const;
  // Sets a default of the server in `*params`.
  void Set(const ServerValues& server, const NamedValue& value,
           GenerationParams* params) const;
  // Takes these, unless the request would be invalid.
  bool TakeValues(const ServerValues& server,
                  std::span<const NamedValue> values);
  void MarkTaken(const NamedValue& value);
  // Takes the model's defaults and returns which of them.
  std::vector<bool> TakeFields(const GenerationDefaults& defaults);
  // Lowers max_new_tokens of the model's defaults to `limit`.
  void LimitMaxTokens(int64_t limit);

  GenerationParams& params() { return resolved_.params; }

  const ModelDescription& model_;
  const ApiDefaults* const api_;
  const int64_t num_prompt_tokens_;
  bool keeps_include_stop_ = false;
  bool keeps_speculate_ = false;
  // The length of a request that leaves max_new_tokens open; nullopt: the
  // model's (ModelDescription::default_max_new_tokens).
  std::optional<int64_t> max_new_tokens_;
  std::vector<std::string_view> given_;  // and what was taken
  ResolvedParams resolved_;
};

bool Resolver::IsValid(const ModelDescription& model,
                       GenerationParams params) const {
  params.bad_words.clear();     // has no tokens yet
  params.include_stop = false;  // may belong to a stop that is still open
  // Speculation of a default excludes no search: it is dropped later.
  if (!keeps_speculate_ && params.speculate == resolved_.params.speculate) {
    params.speculate.reset();
  }
  const int64_t most = MostNewTokens(params);
  if (max_new_tokens_ && most >= 1 && !params.max_new_tokens &&
      !params.allowed_sequences) {
    params.max_new_tokens = std::min(*max_new_tokens_, most);
  }
  return ValidateParams(model, num_prompt_tokens_, &params).ok();
}

int64_t Resolver::MostNewTokens(const GenerationParams& params) const {
  const int64_t in_context =
      model_.max_context - NumContextTokens(model_, num_prompt_tokens_, params);
  return api_ == nullptr ? in_context : std::min(in_context, api_->max_tokens);
}

void Resolver::FindMaxTokens(const ServerValues& server,
                             const GenerationDefaults& defaults) {
  const int64_t most = MostNewTokens(params());
  if (!IsOpen("max_new_tokens") || most < 1) return;
  const std::optional<int64_t>& of_server = server.params.max_new_tokens;
  if (of_server && *of_server >= 1 && *of_server <= most) {
    max_new_tokens_ = of_server;
    return;
  }
  const int64_t num_in_context =
      NumContextTokens(model_, num_prompt_tokens_, params());
  max_new_tokens_ = MaxNewTokensOf(defaults, {num_in_context, most});
  if (max_new_tokens_ || api_ == nullptr) return;
  max_new_tokens_ = std::min(most, api_->max_new_tokens);
}

void Resolver::SettleSearch(const ServerValues& server, int64_t model_beams) {
  SearchKind search =
      SearchOf(params(), !IsOpen("do_sample"), !IsOpen("temperature"));
  const bool is_by_server = search == SearchKind::kOpen;
  if (is_by_server) search = SearchOf(server);
  // Greedy search has no beams either, and one result.
  const bool refuses_beams = is_by_server && !IsOpen("num_beams");
  const bool is_greedy =
      search == SearchKind::kNoDraws && params().num_return_sequences == 1;
  if (refuses_beams && !is_greedy) search = SearchKind::kDraws;
  if (search == SearchKind::kOpen) {
    // num_beams 1 of the server takes the place of the model's beams.
    if (model_beams > 1 && !Names(server, "num_beams")) return;
    search = SearchKind::kDraws;
  }
  const bool draws = search == SearchKind::kDraws;
  if (draws && IsOpen("num_beams")) {
    params().num_beams = 1;
    given_.push_back("num_beams");
  }
  if (IsOpen("do_sample")) {
    params().do_sample = draws || (is_by_server && server.params.do_sample);
    given_.push_back("do_sample");
    const auto of_server =
        std::ranges::find(server.values, "do_sample", &NamedValue::first);
    if (of_server != server.values.end() &&
        params().do_sample == server.params.do_sample) {
      resolved_.defaults.push_back(*of_server);
    }
  }
}

void Resolver::Set(const ServerValues& server, const NamedValue& value,
                   GenerationParams* params) const {
  ParamNamed(value.first).member.copy(server.params, params);
  const bool are_beams = value.first == "num_beams" && params->num_beams > 1;
  if (api_ == nullptr || !are_beams) return;
  params->num_beams = std::max(params->num_beams, params->num_return_sequences);
}

bool Resolver::TakeValues(const ServerValues& server,
                          std::span<const NamedValue> values) {
  GenerationParams with = params();
  for (const NamedValue& value : values) Set(server, value, &with);
  if (!IsValid(WithAnyBeams(model_), with)) return false;
  params() = std::move(with);
  for (const NamedValue& value : values) MarkTaken(value);
  return true;
}

void Resolver::MarkTaken(const NamedValue& value) {
  given_.push_back(ParamNamed(value.first).name);
  resolved_.defaults.push_back(value);
}

void Resolver::Take(const ServerValues& server) {
  NamedValues open;
  for (const NamedValue& value : server.values) {
    if (IsOpen(value.first)) open.push_back(value);
  }
  if (open.empty() || TakeValues(server, open)) return;
  for (const NamedValue& value : open) TakeValues(server, {&value, 1});
  const auto beams = std::ranges::find(open, "num_beams", &NamedValue::first);
  const bool is_left = beams != open.end() && IsOpen("num_beams");
  if (is_left && !ValidateSearch(model_, params()).ok()) {
    Set(server, *beams, &params());
    MarkTaken(*beams);
  }
}

void Resolver::Take(const GenerationDefaults& defaults) {
  const int64_t n = params().num_return_sequences;
  const int64_t num_beams = defaults.params.num_beams;
  if (api_ != nullptr && num_beams > 1 && n > num_beams &&
      IsOpen("num_beams")) {
    params().num_beams = n;
    given_.push_back("num_beams");
    resolved_.defaults.emplace_back("num_beams", Concat(n));
  }
  const std::vector<bool> is_taken = TakeFields(defaults);
  for (size_t i = 0; i < is_taken.size(); ++i) {
    if (is_taken[i]) resolved_.defaults.push_back(defaults.fields[i]);
  }
  if (api_ != nullptr && IsOpen("max_new_tokens")) {
    LimitMaxTokens(api_->max_tokens);
  }
}

std::vector<bool> Resolver::TakeFields(const GenerationDefaults& defaults) {
  std::vector<bool> is_taken(defaults.fields.size());
  std::optional<ModelDescription> with_any_beams;
  if (MostSequences(defaults.params) > model_.limits.max_beams) {
    with_any_beams = WithAnyBeams(model_);
  }
  const ModelDescription& model = with_any_beams ? *with_any_beams : model_;
  const int64_t num_in_context =
      NumContextTokens(model, num_prompt_tokens_, params());
  const PromptRoom room = {num_in_context, model.max_context - num_in_context};
  if (defaults.empty() || room.num_left < 1) return is_taken;
  const bool asks_for_search = AsksForSearch(given_, params());
  const auto is_open = [&](std::string_view param) {
    return IsOpen(param) && !(param == "do_sample" && asks_for_search) &&
           !IsOfConstraint(param, params());
  };
  const auto take_all = [&](bool are_large, GenerationParams* rest) {
    for (size_t i = 0; i < is_taken.size(); ++i) {
      const std::string_view name = defaults.fields[i].first;
      const std::string_view param = ParamOfDefault(name);
      if (ParamNamed(param).Is(kLarge) != are_large || !is_open(param)) {
        continue;
      }
      if (param == "forced_bos_token_id" &&
          !ForcedBosByDefault(defaults, model, num_prompt_tokens_, params())) {
        continue;
      }
      GenerationParams with = *rest;
      SetDefault(name, defaults, room, &with);
      if (!IsValid(model, with)) continue;
      *rest = std::move(with);
      is_taken[i] = true;
    }
  };
  // Large params are checked once for each large default, not for all.
  GenerationParams rest = params();
  CopyLargeParams(GenerationParams(), &rest);
  take_all(/*are_large=*/false, &rest);
  // The error of an invalid search describes the beams that it would have had.
  for (size_t i = 0; i < is_taken.size(); ++i) {
    const std::string_view name = defaults.fields[i].first;
    if (name != "num_beams" || is_taken[i] || !is_open(name)) continue;
    if (ValidateSearch(model, rest).ok()) continue;
    SetDefault(name, defaults, {}, &rest);
    is_taken[i] = true;
  }
  CopyLargeParams(params(), &rest);
  params() = std::move(rest);
  take_all(/*are_large=*/true, &params());
  return is_taken;
}

void Resolver::LimitMaxTokens(int64_t limit) {
  if (params().max_new_tokens <= limit) return;
  params().max_new_tokens = limit;
  std::erase_if(resolved_.defaults, [](const NamedValue& value) {
    return value.first == "max_new_tokens" || value.first == "max_length";
  });
  resolved_.defaults.emplace_back("max_new_tokens", Concat(limit));
}

void Resolver::DropIncludeStop() {
  if (!params().stop.empty() || keeps_include_stop_) return;
  params().include_stop = false;
  std::erase_if(resolved_.defaults, [](const NamedValue& value) {
    return value.first == "include_stop";
  });
}

void Resolver::DropSpeculation() {
  const std::optional<SpeculationParams>& speculate = params().speculate;
  if (keeps_speculate_ || !speculate ||
      CanDraftBy(speculate->method, params())) {
    return;
  }
  params().speculate.reset();
  std::erase_if(resolved_.defaults, [](const NamedValue& value) {
    return value.first == "speculate";
  });
}

void Resolver::SetMaxTokens() {
  if (params().max_new_tokens || params().allowed_sequences) return;
  int64_t room = std::min(MostNewTokens(params()), api_->max_new_tokens);
  const int64_t in_pages = RoomInPages(model_, num_prompt_tokens_, params());
  if (in_pages < room) {
    // If not even one token fits, the engine refuses the request.
    room = std::max<int64_t>(in_pages, 1);
    // Listed as a default, because the request does not determine it.
    if (in_pages >= 1) {
      resolved_.defaults.emplace_back("max_new_tokens", Concat(room));
    }
  }
  if (room >= 1) params().max_new_tokens = room;
}

}  // namespace

ResolvedParams ResolveDefaults(const DefaultSources& sources,
                               GenerationParams params,
                               std::span<const std::string_view> given,
                               const ModelDescription& model,
                               int64_t num_prompt_tokens) {
  static const ServerValues kNoServer;
  static const GenerationDefaults kNoModel;
  const ServerValues& server =
      sources.server != nullptr ? *sources.server : kNoServer;
  const GenerationDefaults& defaults =
      sources.model != nullptr ? *sources.model : kNoModel;
  Resolver resolver(std::move(params), given, model, num_prompt_tokens,
                    sources.api);
  resolver.FindMaxTokens(server, defaults);
  if (sources.api != nullptr) {
    resolver.SettleSearch(server, defaults.params.num_beams);
  }
  resolver.Take(server);
  resolver.Take(defaults);
  resolver.DropIncludeStop();
  resolver.DropSpeculation();
  if (sources.api != nullptr) resolver.SetMaxTokens();
  return std::move(resolver).resolved();
}

std::string SpeculationNote(const DefaultSources& sources,
                            const GenerationParams& params,
                            std::span<const std::string_view> given,
                            const ModelDescription& model,
                            int64_t num_prompt_tokens) {
  constexpr std::string_view kSpeculate = "speculate";
  const std::optional<SpeculationParams>& speculate = params.speculate;
  if (!speculate || speculate->method == SpeculationMethod::kNone ||
      std::ranges::find(given, kSpeculate) == given.end()) {
    return "";
  }
  const auto resolve = [&](GenerationParams with) {
    return ResolveDefaults(sources, std::move(with), given, model,
                           num_prompt_tokens)
        .params;
  };
  const GenerationParams resolved = resolve(params);
  GenerationParams without = params;
  without.speculate.reset();
  without = resolve(std::move(without));
  std::vector<std::string> left;
  for (const std::string_view name :
       {"stochastic", "do_sample", "num_beams", "num_beam_groups"}) {
    const ParamMember& member = ParamNamed(name).member;
    if (member.equal(resolved, without)) continue;
    const std::string number = member.show(without);
    left.push_back(Concat(name, " ", number.empty() ? "true" : number));
  }
  if (left.empty()) return "";
  return Concat(JoinWithAnd(left), left.size() == 1 ? " is" : " are",
                " left out, a default that does not go with ", kSpeculate, " ",
                NameOf(speculate->method));
}

bool SamplesUnlessSelected(const ServerValues& server) {
  const SearchKind search = SearchOf(server);
  return search == SearchKind::kDraws || search == SearchKind::kOpen;
}

absl::StatusOr<NamedValues> CompleteRequest(
    const GenerationDefaults& defaults,
    std::optional<std::span<const std::string_view>> given,
    const Tokenizer* tokenizer, const ModelDescription& model,
    Request* request) {
  ASSIGN_OR_RETURN(
      NamedValues taken,
      ResolveDecoderPrompt(tokenizer, model, defaults, &request->params));
  // As ValidateRequest does, but before num_continued and the prompt's length
  // are read.
  RETURN_IF_ERROR(AppendDecoderPrompt(model, request));
  if (defaults.empty()) return taken;
  std::vector<std::string_view> differing;
  if (!given) differing = DifferingParams(request->params);
  ResolvedParams resolved = ResolveDefaults(
      {.model = &defaults}, std::move(request->params),
      given ? *given : differing, model, std::ssize(request->prompt_tokens));
  request->params = std::move(resolved.params);
  std::ranges::move(resolved.defaults, std::back_inserter(taken));
  return taken;
}

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

}  // namespace espalier
