#include "text/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/byte_fallback.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/post_processor.h"
#include "text/pipeline/token_decoder.h"

namespace espalier {
namespace {

// Spans and lists of a piece count bytes in 31 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Limit on the spellings of all tokens, each as the first and as a later one.
constexpr size_t kMaxSpellingBytes = size_t{512} << 20;

// A worker that is kept does not keep more than this of one kind.
constexpr size_t kMaxKeptEntries = 65536;

const json::value& FieldOrNull(const json::value& file, const char* name) {
  static const json::value null;
  const json::value* value = file.get_object().if_contains(name);
  return value == nullptr ? null : *value;
}

// Added tokens that the model's vocabulary has too are the same ones.
absl::Status CheckAddedTokens(const AddedTokens& added,
                              const Vocabulary& vocabulary) {
  for (const AddedToken& token : added.tokens()) {
    const auto id = vocabulary.Find(token.content);
    if (id ? *id == token.id : !vocabulary.Has(token.id)) continue;
    return InvalidArgument(
        "added_tokens: id ", token.id, " of ", ShownInQuotes(token.content),
        " must be that of model.vocab, where ",
        id ? Concat("it has ", *id)
           : Concat(token.id, " is ",
                    ShownInQuotes(vocabulary.Piece(token.id))));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenSpellings> SpellAll(const Vocabulary& vocabulary,
                                        const AddedTokens& added,
                                        const TokenDecoder& decoder,
                                        RegexBudget* budget) {
  TokenSpellings spellings;
  spellings.set_broken_characters(decoder.broken_characters());
  spellings.set_opening_spaces(OpeningSpaces::kOwnSpelling);
  TokenId size = vocabulary.size();
  if (!added.tokens().empty()) {
    size = std::max(size, added.tokens().back().id + 1);
  }
  size_t num_bytes = 0;
  for (TokenId token = 0; token < size; ++token) {
    const AddedToken* entry = added.Find(token);
    const bool is_text =
        entry == nullptr ? vocabulary.Has(token) : !entry->special;
    if (!is_text) {
      spellings.Add(SpellingKind::kOutside, "");
      continue;
    }
    const std::string_view piece =
        entry == nullptr ? vocabulary.Piece(token) : entry->spelt();
    ASSIGN_OR_RETURN(const auto later, decoder.Spell(piece, false, budget));
    ASSIGN_OR_RETURN(const auto first, decoder.Spell(piece, true, budget));
    num_bytes += later.text.size() + first.text.size();
    if (num_bytes > kMaxSpellingBytes) {
      return InvalidArgument("decoder must spell all tokens in at most ",
                             kMaxSpellingBytes, " bytes, got more by token ",
                             token);
    }
    spellings.Add(later.kind, later.text);
    if (first != later) spellings.AddOpening(token, first.kind, first.text);
  }
  return spellings;
}

// The token that `name` of tokenizer_config.json is; nothing without a name.
absl::StatusOr<std::optional<TokenId>> FindNamed(
    const std::optional<std::string>& piece, std::string_view name,
    const Vocabulary& vocabulary, const AddedTokens& added) {
  if (!piece) return std::nullopt;
  for (const AddedToken& token : added.tokens()) {
    if (token.content == *piece) return std::optional(token.id);
  }
  if (const auto id = vocabulary.Find(*piece)) return id;
  return InvalidArgument("tokenizer_config.json: ", name,
                         " must be a token, got ", ShownInQuotes(*piece));
}

absl::StatusOr<SpecialTokens> FindSpecialTokens(const TokenizerConfig& config,
                                                const Vocabulary& vocabulary,
                                                const AddedTokens& added,
                                                std::optional<TokenId> unk) {
  SpecialTokens tokens;
  ASSIGN_OR_RETURN(tokens.bos,
                   FindNamed(config.bos_token, "bos_token", vocabulary, added));
  ASSIGN_OR_RETURN(tokens.eos,
                   FindNamed(config.eos_token, "eos_token", vocabulary, added));
  ASSIGN_OR_RETURN(tokens.pad,
                   FindNamed(config.pad_token, "pad_token", vocabulary, added));
  ASSIGN_OR_RETURN(tokens.unk,
                   FindNamed(config.unk_token, "unk_token", vocabulary, added));
  if (!tokens.unk) tokens.unk = unk;
  return tokens;
}

// REQUIRES: there is an EOS.
NaturalLanguages FindLanguages(const LanguageRule& rule,
                               const AddedTokens& added,
                               const SpecialTokens& tokens) {
  std::vector<NaturalLanguage> languages;
  for (const AddedToken& token : added.tokens()) {
    const std::string_view code = rule.code_of(token.content);
    if (!token.special || code.empty()) continue;
    languages.push_back({std::string(code), token.id});
  }
  return NaturalLanguages(rule.mark, std::move(languages), *tokens.eos);
}

absl::Status CheckFile(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.CheckKnown(
      {"version", "truncation", "padding", "added_tokens", "normalizer",
       "pre_tokenizer", "post_processor", "decoder", "model"}));
  ASSIGN_OR_RETURN(const auto version, fields.OptionalString("version"));
  if (version.value_or("1.0") != "1.0") return fields.Wrong("version", "1.0");
  if (fields.Find("model") == nullptr)
    return fields.Wrong("model", "an object");
  return absl::OkStatus();
}

}  // namespace

JsonTokenizer::JsonTokenizer(Parts parts, Steps steps)
    : Tokenizer(std::move(parts)),
      steps_(std::move(steps)),
      added_by_content_(steps_.added.tokens().size()) {
  for (const AddedToken& token : steps_.added.tokens()) {
    if (!added_by_content_.Find(token.content)) {
      added_by_content_.Add(token.content, token.id);
    }
  }
}

JsonTokenizer::~JsonTokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> JsonTokenizer::Parse(
    std::string_view text, const TokenizerConfig& config,
    const std::string& path) {
  ASSIGN_OR_RETURN(const json::value file, ParseJson(text));
  return Make(file, text.size(), config, path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> JsonTokenizer::Make(
    const json::value& file, size_t num_bytes, const TokenizerConfig& config,
    const std::string& path) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(file, ""));
  RETURN_IF_ERROR(CheckFile(fields));
  RegexBudget budget(num_bytes);
  Steps steps;
  steps.path = path;
  ASSIGN_OR_RETURN(
      steps.normalizer,
      Normalizer::Read(FieldOrNull(file, "normalizer"), "normalizer"));
  ASSIGN_OR_RETURN(
      steps.pre_tokenizer,
      PreTokenizer::Read(FieldOrNull(file, "pre_tokenizer"), "pre_tokenizer"));
  ASSIGN_OR_RETURN(steps.added, AddedTokens::Read(
                                    FieldOrNull(file, "added_tokens"),
                                    "added_tokens", steps.normalizer, &budget));
  ASSIGN_OR_RETURN(
      steps.subwords,
      ReadSubwordModel(FieldOrNull(file, "model"), "model",
                       steps.pre_tokenizer.is_byte_level(), steps.added));
  const Vocabulary& vocabulary = *steps.subwords.vocabulary;
  RETURN_IF_ERROR(CheckAddedTokens(steps.added, vocabulary));
  ASSIGN_OR_RETURN(const TokenDecoder decoder,
                   TokenDecoder::Read(FieldOrNull(file, "decoder"), "decoder"));
  Parts parts;
  ASSIGN_OR_RETURN(parts.spellings,
                   SpellAll(vocabulary, steps.added, decoder, &budget));
  ASSIGN_OR_RETURN(
      TokensAround around,
      ReadPostProcessor(FieldOrNull(file, "post_processor"), "post_processor",
                        parts.spellings.vocab_size()));
  ASSIGN_OR_RETURN(
      parts.special_tokens,
      FindSpecialTokens(config, vocabulary, steps.added, steps.subwords.unk));
  parts.before_text = std::move(around.before);
  parts.after_text = std::move(around.after);
  for (const AddedToken& token : steps.added.tokens()) {
    if (token.special) parts.special.push_back(token.id);
  }
  const bool has_sources =
      config.languages && config.languages->mark != LanguageMark::kTargetFirst;
  if (has_sources) {
    parts.languages =
        FindLanguages(*config.languages, steps.added, parts.special_tokens);
    ASSIGN_OR_RETURN(Direction direction,
                     parts.languages.DefaultOf(*config.languages));
    parts.before_text = std::move(direction.before_text);
    parts.after_text = std::move(direction.after_text);
  }
  steps.subwords.model->MakeUnreachable(parts.special);
  std::unique_ptr<JsonTokenizer> tokenizer(
      new JsonTokenizer(std::move(parts), std::move(steps)));
  if (config.languages && !has_sources) {
    tokenizer->FindTargets(*config.languages);
  }
  return tokenizer;
}

void JsonTokenizer::FindTargets(const LanguageRule& rule) {
  std::vector<NaturalLanguage> languages;
  for (TokenId token = 0; token < vocab_size(); ++token) {
    const std::string piece = Piece(token);
    const std::string_view code = rule.code_of(piece);
    if (!code.empty()) languages.push_back({std::string(code), token});
  }
  if (languages.empty()) return;
  // A text that begins with a language has its space before it, unless the
  // language is an added token.
  const TokenId first = languages.front().token;
  const auto tokens = EncodeText(Piece(first), /*parse_special=*/true);
  if (!tokens.ok() || tokens->empty() || tokens->back() != first) return;
  Direction around = {.before_text = before_text(), .after_text = after_text()};
  around.before_text.insert(around.before_text.end(), tokens->begin(),
                            tokens->end() - 1);
  SetLanguages(
      NaturalLanguages(rule.mark, std::move(languages), std::move(around)));
}

std::unique_ptr<JsonTokenizer::Worker> JsonTokenizer::TakeWorker() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Worker> worker = std::move(idle_.back());
      idle_.pop_back();
      return worker;
    }
  }
  return std::make_unique<Worker>();
}

void JsonTokenizer::GiveBack(std::unique_ptr<Worker> worker) const {
  const size_t most = std::max(
      {worker->pieces.spans.capacity(), worker->pieces.scratch.capacity(),
       worker->pieces.rewritten.capacity(), worker->scratch.paths.capacity(),
       worker->scratch.parts.capacity()});
  if (most > kMaxKeptEntries) return;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(worker));
}

absl::StatusOr<std::vector<TokenId>> JsonTokenizer::EncodeText(
    std::string_view text, bool parse_special) const {
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("a text of ", text.size(), " bytes, more than ",
                           kMaxTextBytes);
  }
  std::unique_ptr<Worker> worker = TakeWorker();
  RegexBudget budget(text.size());
  worker->pieces.budget = &budget;
  std::vector<TokenId> tokens;
  const absl::Status status =
      EncodeInto(text, parse_special, worker.get(), &tokens);
  worker->pieces.budget = nullptr;
  GiveBack(std::move(worker));
  if (!status.ok()) {
    return steps_.path.empty() ? status : Annotate(status, steps_.path);
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> JsonTokenizer::EncodeText(
    std::string_view text, bool parse_special, int max_tokens) const {
  RETURN_IF_ERROR(CheckBeginnings(text, parse_special, max_tokens, ""));
  return EncodeText(text, parse_special);
}

absl::Status JsonTokenizer::EncodeInto(std::string_view text,
                                       bool parse_special, Worker* worker,
                                       std::vector<TokenId>* tokens) const {
  const auto is_wanted = [&](TokenId token) {
    return parse_special || !is_special(token);
  };
  const auto on_token = [&](TokenId token) {
    tokens->push_back(token);
    return absl::OkStatus();
  };
  const auto on_text = [&](size_t begin, size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (steps_.normalizer.empty()) {
      return EncodeNormalized(part, begin == 0, parse_special, worker, tokens);
    }
    Normalizer::Text normalized(part, worker->pieces.budget);
    RETURN_IF_ERROR(steps_.normalizer.Apply(&normalized));
    return EncodeNormalized(normalized.text,
                            begin == 0 && normalized.beginning > 0,
                            parse_special, worker, tokens);
  };
  return steps_.added.Split(text, false, is_wanted, on_text, on_token);
}

absl::Status JsonTokenizer::EncodeNormalized(
    std::string_view text, bool is_beginning, bool parse_special,
    Worker* worker, std::vector<TokenId>* tokens) const {
  const auto is_wanted = [&](TokenId token) {
    return parse_special || !is_special(token);
  };
  const auto on_token = [&](TokenId token) {
    tokens->push_back(token);
    return absl::OkStatus();
  };
  const auto on_text = [&](size_t begin, size_t end) {
    worker->pieces.text = text.substr(begin, end - begin);
    worker->pieces.is_beginning = is_beginning && begin == 0;
    RETURN_IF_ERROR(steps_.pre_tokenizer.Apply(&worker->pieces));
    return EncodePieces(worker, tokens);
  };
  return steps_.added.Split(text, true, is_wanted, on_text, on_token);
}

absl::Status JsonTokenizer::EncodePieces(Worker* worker,
                                         std::vector<TokenId>* tokens) const {
  const SubwordModel& model = *steps_.subwords.model;
  for (const PreTokenizer::Span& span : worker->pieces.spans) {
    std::string_view piece =
        worker->pieces.text.substr(span.begin, span.end - span.begin);
    while (!piece.empty()) {
      const size_t size = model.FirstPartSize(piece);
      RETURN_IF_ERROR(EncodePiece(piece.substr(0, size), worker, tokens));
      piece.remove_prefix(size);
    }
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::EncodePiece(std::string_view piece, Worker* worker,
                                        std::vector<TokenId>* tokens) const {
  if (worker->cache.Find(piece, tokens)) return absl::OkStatus();
  const size_t begin = tokens->size();
  RETURN_IF_ERROR(
      steps_.subwords.model->Encode(piece, &worker->scratch, tokens));
  worker->cache.Keep(piece, std::span(*tokens).subspan(begin));
  return absl::OkStatus();
}

bool JsonTokenizer::IsAdded(TokenId token) const {
  return steps_.added.Find(token) != nullptr;
}

void JsonTokenizer::OnMarkedSpecial(std::span<const TokenId> tokens) {
  steps_.subwords.model->MakeUnreachable(tokens);
}

std::optional<TokenId> JsonTokenizer::PieceToId(std::string_view piece) const {
  const auto added = added_by_content_.Find(piece);
  return added ? added : steps_.subwords.vocabulary->Find(piece);
}

std::string JsonTokenizer::Piece(TokenId token) const {
  if (const AddedToken* added = steps_.added.Find(token)) return added->content;
  return std::string(steps_.subwords.vocabulary->Piece(token));
}

std::string JsonTokenizer::Spelling(TokenId token) const {
  const TokenSpelling spelling = spellings().Of(token);
  if (spelling.kind == SpellingKind::kText) return std::string(spelling.text);
  if (spelling.kind != SpellingKind::kBytes) return Piece(token);
  std::string text;
  for (const char byte : spelling.text) {
    text += FallbackPiece(static_cast<uint8_t>(byte));
  }
  return text;
}

}  // namespace espalier
