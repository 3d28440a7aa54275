#include "examples/cli/runtime/runtime.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <iterator>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "beam/strategy/selection_options.h"
#include "beam/strategy/stopping_criteria.h"
#include "espalier/load_catalogues.h"
#include "espalier/model_defaults.h"
#include "examples/cli/options/option_names.h"
#include "examples/cli/output/loading_progress.h"
#include "examples/cli/output/output.h"
#include "model/model_directory.h"
#include "model/transformer_config.h"
#include "request/bad_words.h"
#include "request/decoder_prompt.h"
#include "request/param_fields.h"
#include "request/resolve_defaults.h"
#include "text/chat/final_message.h"

namespace espalier::cli {
namespace {

// Returns the template that the options select; nothing for a model without
// text.
absl::StatusOr<std::optional<PromptTemplate>> ChooseTemplate(
    const RuntimeOptions& options, const ModelText& text) {
  const bool by_language = !options.from.empty() || !options.to.empty();
  const bool by_name = !options.template_name.empty();
  for (const auto& [flag, name] :
       {std::pair("--template", &options.template_name),
        std::pair("--from", &options.from), std::pair("--to", &options.to)}) {
    if (!IsUtf8(*name)) return InvalidArgument(flag, " is not UTF-8");
  }
  if (!text.templates.has_value()) {
    if (!by_name && !by_language) return std::nullopt;
    return InvalidArgument("--template, --from and --to need ", options.model,
                           "/", Tokenizer::FileNames(), ", and there is none");
  }
  if (by_name && by_language) {
    return InvalidArgument("--template and --from/--to exclude each other");
  }
  if (!by_name && !by_language) return text.templates->default_template();
  const bool lacks_source =
      options.from.empty() && !text.templates->takes_target_alone();
  if (by_language && (lacks_source || options.to.empty())) {
    return InvalidArgument(
        options.to.empty() ? "--from needs --to" : "--to needs --from",
        " beside it: the languages of the prompt and of the output");
  }
  const absl::StatusOr<const PromptTemplate*> chosen =
      by_name ? text.templates->Find(options.template_name)
              : text.templates->Find(options.from, options.to);
  if (chosen.ok()) return **chosen;
  return Annotate(chosen.status(), by_name                ? "--template"
                                   : options.from.empty() ? "--to"
                                                          : "--from and --to");
}

// Returns the command-line flag of a field of GeneratorOptions.
std::string FlagOf(std::string_view field) {
  if (field == "num_threads") return "--threads";
  if (field == "kv_cache_bytes") return "--kv-cache-mib";
  if (field == "host_cache_bytes") return "--host-cache-mib";
  // Options have no fields: "--speculate: method" of "speculate.method".
  const size_t dot = field.find('.');
  if (dot == field.npos) return Flag(field);
  return Concat(Flag(field.substr(0, dot)), ": ", field.substr(dot + 1));
}

// Names --model in an error on the model's directory or a file in it, and other
// flags in other errors.
absl::Status OfModel(const RuntimeOptions& options, const absl::Status& error) {
  const std::string& directory = options.model;
  const std::string message = Message(error);
  const bool is_of_model =
      message.starts_with(directory) && message.size() > directory.size() &&
      std::string_view("/: ").find(message[directory.size()]) !=
          std::string_view::npos;
  return is_of_model ? Annotate(InFlags(error), options.names.Of("model"))
                     : InFlags(error);
}

// With memory in bytes.
GeneratorOptions InBytes(const RuntimeOptions& options) {
  GeneratorOptions generator = options.generator;
  if (options.kv_cache_mib.has_value()) {
    generator.kv_cache_bytes = int64_t{*options.kv_cache_mib} << 20;
  }
  if (options.host_cache_mib.has_value()) {
    generator.host_cache_bytes = int64_t{*options.host_cache_mib} << 20;
  }
  return generator;
}

absl::StatusOr<BackendOptions> ResolveBackend(const RuntimeOptions& options) {
  absl::StatusOr<BackendOptions> resolved = Resolve(InBytes(options));
  if (!resolved.ok()) return InFlags(resolved.status());
  RETURN_IF_ERROR(InFlags(CheckPreemptedPages(*resolved)));
  return resolved;
}

// Says on a terminal how far it is.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(
    const std::string& directory, BackendOptions options) {
  LoadingProgress progress;
  options.load_progress = [&](int64_t done, int64_t total) {
    progress.Update(done, total);
  };
  options.load_note = PrintNote;
  return Backend::Load(directory, options);
}

}  // namespace

absl::Status InFlags(const absl::Status& error) {
  return InWordsOf(
      {.option = FlagOf, .unit_bytes = int64_t{1} << 20, .unit = "MiB"}, error);
}

absl::StatusOr<GeneratorOptions> ReadGeneratorOptions(
    const RuntimeOptions& options) {
  RETURN_IF_ERROR(ResolveBackend(options).status());
  RETURN_IF_ERROR(
      Annotate(CheckModelDirectory(options.model), options.names.Of("model")));
  RETURN_IF_ERROR(OfModel(
      options,
      LoadModelDefaults(options.generator.generation_config, options.model)
          .status()));
  return InBytes(options);
}

absl::Status CheckReadsTokens(const std::string& directory) {
  const absl::StatusOr<TransformerConfig> config =
      ReadTransformerConfig(directory);
  if (!config.ok() || !config->encoder || !config->encoder->feature_shape()) {
    return absl::OkStatus();
  }
  return InvalidArgument(directory, " has a model of speech, which reads ",
                         "audio: use espalier transcribe, or serve's ",
                         "/v1/audio/transcriptions");
}

absl::Status LoadError(const RuntimeOptions& options,
                       const absl::Status& error) {
  return OfModel(options, error);
}

absl::Status NameModelDefaults(const absl::Status& error,
                               const NamedValues& taken,
                               const GenerationDefaults& defaults) {
  return NameDefaults(
      InFlags(error), taken,
      Concat(defaults.path, ": give another, or --generation-config none"));
}

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Load(
    const RuntimeOptions& options) {
  ASSIGN_OR_RETURN(const BackendOptions resolved, ResolveBackend(options));
  std::unique_ptr<Runtime> runtime(new Runtime());
  const absl::Status loaded = runtime->LoadModel(options, resolved);
  if (!loaded.ok()) return OfModel(options, loaded);
  const std::string warning = UnsupportedWarning(runtime->defaults_);
  if (!warning.empty()) {
    PrintToStderr(Concat("espalier: warning: ", warning, "\n"));
  }
  runtime->stats_path_ = options.stats;
  runtime->backend_options_ = resolved;
  EngineOptions engine = EngineOptionsOf(resolved, runtime->tokenizer_);
  if (!options.trace.empty()) {
    runtime->trace_ =
        std::make_shared<TraceRecorder>(options.trace, runtime->tokenizer_);
    engine.scheduler.trace = runtime->trace_;
  }
  const ModelDescription& model = runtime->backend_->steps()->description();
  const absl::StatusOr<std::shared_ptr<ItemCatalogues>> items = LoadCatalogues(
      options.generator.items, runtime->tokenizer_.get(), model.vocab_size,
      EndIdsByDefault(runtime->defaults_, model),
      runtime->backend_->item_trie_builder());
  if (!items.ok()) return InFlags(items.status());
  engine.items = *items;
  ASSIGN_OR_RETURN(runtime->engine_,
                   Engine::Create(runtime->context_.get_executor(),
                                  runtime->backend_->steps(), engine));
  return runtime;
}

absl::Status Runtime::LoadModel(const RuntimeOptions& options,
                                const BackendOptions& resolved) {
  directory_ = options.model;
  RETURN_IF_ERROR(
      Annotate(CheckModelDirectory(directory_), options.names.Of("model")));
  RETURN_IF_ERROR(CheckReadsTokens(directory_));
  ASSIGN_OR_RETURN(
      defaults_,
      LoadModelDefaults(options.generator.generation_config, directory_));
  ASSIGN_OR_RETURN(ModelText text, ModelText::Load(directory_));
  tokenizer_ = text.tokenizer;
  ASSIGN_OR_RETURN(template_, ChooseTemplate(options, text));
  templates_ = std::move(text.templates);
  family_translates_sentences_ = text.family_translates_sentences;
  split_sentences_ = options.split_sentences;
  parse_special_ = options.parse_special;
  if (options.chat) {
    is_chat_ = true;
    system_ = options.system;
    RETURN_IF_ERROR(chat("--chat").status());
  }
  ASSIGN_OR_RETURN(backend_, LoadBackend(directory_, resolved));
  RETURN_IF_ERROR(CheckSplit());
  return FitDefaults(options.generator.generation_config,
                     backend_->steps()->description(), tokenizer_ != nullptr,
                     &defaults_);
}

absl::StatusOr<ResolvedParams> Runtime::CheckParams(
    GenerationParams params, std::span<const std::string_view> given) const {
  constexpr int kShortestPrompt = 1;  // tokens
  const ModelDescription& model = backend_->steps()->description();
  RETURN_IF_ERROR(
      ResolveDecoderPrompt(tokenizer_.get(), model, defaults_, &params)
          .status());
  ResolvedParams resolved = ResolveDefaults(
      {.model = &defaults_}, std::move(params), given, model, kShortestPrompt);
  params = std::move(resolved.params);
  RETURN_IF_ERROR(ResolveBadWords(tokenizer_.get(), &params));
  const int64_t most = model.max_context - kShortestPrompt;
  if (!model.encoder && params.max_new_tokens.value_or(0) > most) {
    return InvalidField("`max_new_tokens` must be at most ", Limit(most),
                        ", as the prompt and what is generated fit into the "
                        "model's context of ",
                        ContextLimit{model.max_context}, " together",
                        Got(*params.max_new_tokens));
  }
  // The default depends on the prompt, so its limit is not checked yet.
  if (!params.max_new_tokens && !params.allowed_sequences) {
    params.max_new_tokens = 1;
  }
  RETURN_IF_ERROR(
      NameModelDefaults(ValidateParams(model, kShortestPrompt, &params),
                        resolved.defaults, defaults_));
  RETURN_IF_ERROR(CheckStops(params, tokenizer_.get()));
  resolved.params = std::move(params);
  return resolved;
}

std::string Runtime::NoteOnSpeculation(
    const GenerationParams& params,
    std::span<const std::string_view> given) const {
  constexpr int kShortestPrompt = 1;  // tokens
  return SpeculationNote({.model = &defaults_}, params, given,
                         backend_->steps()->description(), kShortestPrompt);
}

absl::StatusOr<Request> Runtime::MakeRequest(RequestBody body,
                                             NamedValues* taken) const {
  Request request;
  request.prompt_tokens = std::move(body.prompt_tokens);
  bool is_chat = body.prompt && is_chat_;
  if (body.prompt) {
    ASSIGN_OR_RETURN(request.prompt_tokens, MakePrompt(body));
    if (!is_chat) RETURN_IF_ERROR(ForceLanguage(&body));
  } else if (body.messages) {
    ChatInputs inputs = {.messages = *std::move(body.messages)};
    RETURN_IF_ERROR(SettleFinalMessage(body.continue_final_message,
                                       /*adds_prompt=*/nullptr, &inputs));
    ASSIGN_OR_RETURN(request.prompt_tokens, MakeChatPrompt(inputs));
    is_chat = !inputs.continue_final_message;
  }
  const bool is_answered =
      is_chat || (templates_ && templates_->AreAnswered(request.prompt_tokens));
  if (is_answered) request.num_continued = 0;
  request.params = std::move(body.params);
  request.caller_id = std::move(body.caller_id);
  ASSIGN_OR_RETURN(*taken,
                   CompleteRequest(defaults_, body.given, tokenizer_.get(),
                                   backend_->steps()->description(), &request));
  return request;
}

absl::Status Runtime::ForceLanguage(RequestBody* body) const {
  ASSIGN_OR_RETURN(const PromptTemplate* const prompt_template,
                   FindTemplate(*body));
  const std::string_view param =
      ForceFirstOutput(backend_->steps()->description(),
                       prompt_template->first_output, &body->params);
  if (!param.empty()) body->given.push_back(param);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> Runtime::MakePrompt(
    const RequestBody& body) const {
  const std::string& text = *body.prompt;
  if (tokenizer_ == nullptr) {
    return MakeFieldError(absl::StatusCode::kFailedPrecondition,
                          "`prompt` needs a tokenizer, and ", directory_,
                          " has no ", Tokenizer::FileNames(),
                          "; use `prompt_tokens`");
  }
  const ModelDescription& model = backend_->steps()->description();
  if (is_chat_) {
    ASSIGN_OR_RETURN(json::array messages, MessagesOf(text));
    return MakeChatPrompt({.messages = std::move(messages)});
  }
  ASSIGN_OR_RETURN(const PromptTemplate* const prompt_template,
                   FindTemplate(body));
  const bool parse_special = parse_special_ || body.parse_special;
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   PromptTokens(text, *prompt_template, *tokenizer_, model,
                                model.max_prompt_tokens(), parse_special));
  if (!parse_special) NoteUnparsed(text, *prompt_template, tokens);
  return tokens;
}

absl::StatusOr<const PromptTemplate*> Runtime::FindTemplate(
    const RequestBody& body) const {
  if (body.template_name.empty()) return &*template_;
  const auto found = templates_->Find(body.template_name);
  if (found.ok()) return *found;
  return InvalidField("`template`: ", Message(found.status()));
}

absl::Status Runtime::CheckSplit() const {
  const bool translates =
      family_translates_sentences_ || (template_ && !template_->to.empty());
  if (split_sentences_.value_or(false) && is_chat_) {
    return InvalidArgument("--chat and --split-sentences exclude each other");
  }
  return OptionNames().InOptions(CheckSplitsTexts(
      {.given = split_sentences_,
       .translates_sentences = translates,
       .has_encoder = backend_->steps()->description().encoder.has_value()}));
}

absl::StatusOr<TextParts> Runtime::Split(RequestBody body) const {
  TextParts parts;
  if (body.prompt && tokenizer_ != nullptr && !is_chat_) {
    const ModelDescription& model = backend_->steps()->description();
    ASSIGN_OR_RETURN(const PromptTemplate* const prompt_template,
                     FindTemplate(body));
    constexpr int kShortestPrompt = 1;
    const GenerationParams params =
        ResolveDefaults({.model = &defaults_}, body.params, body.given, model,
                        kShortestPrompt)
            .params;
    const SplitChoice choice = {
        .given = body.split_sentences,
        .otherwise = split_sentences_,
        .translates_sentences =
            family_translates_sentences_ || !prompt_template->to.empty(),
        .has_encoder = model.encoder.has_value(),
        .parse_special = parse_special_ || body.parse_special};
    ASSIGN_OR_RETURN(const bool is_split, IsSplit(choice, params));
    if (is_split) {
      parts.split = SplitIntoSentences(*body.prompt);
    } else {
      parts.whole_for = FieldOfWholeText(choice, params, *body.prompt);
    }
  }
  parts.body = std::move(body);
  return parts;
}

void Runtime::NoteWholeText(std::string_view field) const {
  if (field.empty()) return;
  std::call_once(whole_text_flag_, [&] {
    PrintNote(
        Concat(WholeTextWarning(field), " (said of the first text alone)"));
  });
}

void Runtime::NoteUnparsed(const std::string& text,
                           const PromptTemplate& prompt_template,
                           std::span<const TokenId> tokens) const {
  const auto own = tokens.subspan(prompt_template.before_text.size());
  const std::string_view name = tokenizer_->UnparsedSpecial(
      text, own.first(own.size() - prompt_template.after_text.size()));
  if (name.empty()) return;
  std::call_once(unparsed_flag_, [&] {
    PrintNote(Concat("a prompt has the name of a special token as text, ",
                     ShownInQuotes(name),
                     "; with --parse-special it is that token (said of one ",
                     "such prompt)"));
  });
}

absl::StatusOr<std::vector<TokenId>> Runtime::MakeChatPrompt(
    const ChatInputs& inputs) const {
  RETURN_IF_ERROR(chat("messages").status());
  return (*chat_)->Make(inputs,
                        backend_->steps()->description().max_prompt_tokens());
}

absl::StatusOr<json::array> Runtime::MessagesOf(const std::string& text) const {
  if (!IsUtf8(text)) return InvalidField("`prompt` is not UTF-8");
  if (!IsUtf8(system_)) return InvalidArgument("--system is not UTF-8");
  json::array messages;
  if (!system_.empty()) {
    messages.push_back(json::object{{"role", "system"}, {"content", system_}});
  }
  messages.push_back(json::object{{"role", "user"}, {"content", text}});
  return messages;
}

const absl::StatusOr<std::unique_ptr<const ChatPrompts>>& Runtime::chat(
    std::string_view wanted_by) const {
  std::call_once(chat_flag_, [&] {
    chat_ = ChatPrompts::Load(directory_, tokenizer_, wanted_by);
  });
  return chat_;
}

absl::StatusOr<Generation> Runtime::MakeAnswer(
    const TextForm& form, const NamedValues& defaults,
    absl::StatusOr<Result> result) const {
  absl::StatusOr<Generation> answer = MakeGeneration(
      std::move(result), form, defaults, ", or raise --kv-cache-mib");
  if (answer.ok()) return answer;
  return NameModelDefaults(answer.status(), defaults, defaults_);
}

absl::Status Runtime::OpenTrace() {
  if (trace_ == nullptr) return absl::OkStatus();
  return Annotate(trace_->Open(), "--trace");
}

absl::Status Runtime::CloseTrace() {
  return trace_ == nullptr ? absl::OkStatus() : trace_->Close();
}

absl::Status Runtime::OpenStats() {
  if (stats_path_.empty()) return absl::OkStatus();
  absl::StatusOr<StatsFile> stats =
      StatsFile::Open(stats_path_, {{"model_name", directory_}});
  if (!stats.ok()) return Annotate(stats.status(), "--stats");
  stats_ = *std::move(stats);
  boost::asio::co_spawn(context_, KeepStats(), boost::asio::detached);
  return absl::OkStatus();
}

boost::asio::awaitable<void> Runtime::KeepStats() {
  while (!stats_ended_) {
    stats_timer_.expires_after(absl::ToChronoNanoseconds(kStatsPeriod));
    boost::system::error_code cancelled;
    co_await stats_timer_.async_wait(
        boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    if (stats_ended_) co_return;
    const EngineStats stats = co_await engine_->Stats();
    stats_status_.Update(stats_->Write(stats));
  }
}

void Runtime::EndStats() {
  stats_ended_ = true;
  stats_timer_.cancel();
}

absl::Status Runtime::CloseStats() {
  if (!stats_) return absl::OkStatus();
  stats_status_.Update(stats_->Write(Stats()));
  return stats_status_;
}

EngineStats Runtime::Stats() {
  EngineStats stats;
  context_.restart();
  boost::asio::co_spawn(
      context_, engine_->Stats(),
      [&](std::exception_ptr, EngineStats s) { stats = std::move(s); });
  context_.run();
  return stats;
}

absl::StatusOr<EngineRequest> Runtime::Open(RequestBody body) const {
  NamedValues taken;
  EngineRequest open;
  ASSIGN_OR_RETURN(open.request, MakeRequest(std::move(body), &taken));
  TextForm form =
      TextForm::Of(open.request, backend_->steps()->description(), tokenizer_);
  open.finish = [this, form = std::move(form),
                 taken = std::move(taken)](absl::StatusOr<Result> result) {
    return MakeAnswer(form, taken, std::move(result));
  };
  return open;
}

boost::asio::awaitable<absl::StatusOr<Generation>> Runtime::Run(
    RequestBody body) {
  absl::StatusOr<TextParts> parts = Split(std::move(body));
  if (!parts.ok()) co_return parts.status();
  co_return co_await AnswerTexts(this, *std::move(parts));
}

boost::asio::awaitable<absl::StatusOr<AnswerStream>> Runtime::Stream(
    RequestBody body) {
  absl::StatusOr<TextParts> parts = Split(std::move(body));
  if (!parts.ok()) co_return parts.status();
  co_return co_await AnswerStream::Open(this, *std::move(parts));
}

void Runtime::EndRequests(std::string_view why) {
  boost::asio::co_spawn(context_, engine_->Shutdown(why),
                        boost::asio::detached);
}

}  // namespace espalier::cli
