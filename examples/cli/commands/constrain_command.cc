#include "examples/cli/commands/constrain_command.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "constrain/byte_automaton.h"
#include "constrain/choice_language.h"
#include "constrain/compile_budget.h"
#include "constrain/contained_words.h"
#include "constrain/gbnf_language.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/sample_text.h"
#include "constrain/start_after.h"
#include "constrain/token_constraint.h"
#include "espalier/model_text.h"
#include "examples/cli/commands/check_lines.h"
#include "examples/cli/commands/constrain_items.h"
#include "examples/cli/input/language_text.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "examples/cli/runtime/load_model_text.h"
#include "request/generation_params.h"
#include "request/read_json_text.h"
#include "request/token_bytes.h"

namespace espalier::cli {
namespace {

// Bytes of a sample after which it is completed.
constexpr int64_t kSampleBytes = 60;
// Longer samples are left out.
constexpr int64_t kMaxSampleBytes = 4096;
// Longer texts are not tokenized: a tokenizer takes some 200 bytes of memory
// for each of a text.
constexpr size_t kMaxTokenizedBytes = 256 << 10;

std::string WhitespaceOf(const ConstrainOptions& options) {
  if (options.no_spaces) return "none";
  return options.whitespace.empty() ? "bounded" : options.whitespace;
}

absl::StatusOr<GrammarLanguage> CompileSchema(const ConstrainOptions& options) {
  ASSIGN_OR_RETURN(const std::string schema, ReadSchema(options.json_schema));
  const std::string whitespace = WhitespaceOf(options);
  JsonSchemaOptions compile = {
      .has_spaces = whitespace != "none",
      // --must-contain needs an automaton without calls.
      .only_recursion_is_called = !options.must_contain.empty()};
  if (IsWhitespacePattern(whitespace)) compile.whitespace = whitespace;
  return CompileJsonSchemaWithCalls(schema, compile);
}

absl::StatusOr<GrammarLanguage> CompileGrammar(
    const ConstrainOptions& options) {
  ASSIGN_OR_RETURN(const std::string grammar, ReadGrammar(options.grammar));
  return CompileGbnf(grammar);
}

absl::StatusOr<GrammarLanguage> CompileRegexOf(
    const ConstrainOptions& options) {
  // --must-contain needs an automaton without calls.
  if (!options.must_contain.empty()) return CompileRegex(options.regex);
  return CompileRegexLanguage(options.regex);
}

int NumKinds(const ConstrainOptions& options) {
  return (options.regex.empty() ? 0 : 1) + (options.choices.empty() ? 0 : 1) +
         (options.json_schema.empty() ? 0 : 1) +
         (options.grammar.empty() ? 0 : 1) + (options.items.empty() ? 0 : 1);
}

absl::StatusOr<GrammarLanguage> CompileOwn(const ConstrainOptions& options) {
  if (!options.grammar.empty()) {
    absl::StatusOr<GrammarLanguage> grammar = CompileGrammar(options);
    if (!grammar.ok()) return Annotate(grammar.status(), "--grammar");
    return grammar;
  }
  if (!options.json_schema.empty()) {
    absl::StatusOr<GrammarLanguage> schema = CompileSchema(options);
    if (!schema.ok()) return Annotate(schema.status(), "--json-schema");
    return schema;
  }
  if (!options.choices.empty()) {
    absl::StatusOr<ByteAutomaton> choice = CompileChoice(options.choices);
    if (!choice.ok()) return Annotate(choice.status(), "--choice");
    return choice;
  }
  absl::StatusOr<GrammarLanguage> regex = CompileRegexOf(options);
  if (!regex.ok()) return Annotate(regex.status(), "--regex");
  return regex;
}

absl::StatusOr<GrammarLanguage> CompileContaining(
    const ConstrainOptions& options) {
  std::optional<ByteAutomaton> texts;
  if (NumKinds(options) > 0) {
    absl::StatusOr<GrammarLanguage> own = CompileOwn(options);
    if (!own.ok() || options.must_contain.empty()) return own;
    auto* const automaton = std::get_if<ByteAutomaton>(&*own);
    if (automaton == nullptr) {
      return InvalidArgument(
          "--must-contain does not go with a language that "
          "recurs");
    }
    texts = std::move(*automaton);
  }
  CompileBudget budget;
  absl::StatusOr<ByteAutomaton> containing =
      ContainWords(texts, options.must_contain, &budget);
  if (!containing.ok()) return Annotate(containing.status(), "--must-contain");
  return containing;
}

absl::StatusOr<GrammarLanguage> Compile(const ConstrainOptions& options) {
  absl::StatusOr<GrammarLanguage> own = CompileContaining(options);
  if (!own.ok() || options.start_after.empty()) return own;
  CompileBudget budget;
  absl::StatusOr<GrammarLanguage> language =
      StartAfter(options.start_after, *own, &budget);
  if (!language.ok()) return Annotate(language.status(), "--start-after");
  return language;
}

// The option that has the language, if it has calls.
std::string_view OptionOf(const ConstrainOptions& options) {
  if (!options.regex.empty()) return "--regex";
  return options.grammar.empty() ? "--json-schema" : "--grammar";
}

// Returns a byte as text: "a", or byte 0xC3.
std::string ShownByte(uint8_t byte) {
  if (byte >= ' ' && byte <= '~') {
    return Concat('"', static_cast<char>(byte), '"');
  }
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return Concat("byte 0x", kDigits[byte >> 4], kDigits[byte & 15]);
}

// Bytes [first, last].
struct ByteRange {
  int first = 0;
  int last = 0;
};

// A language, and the tokens that spell its texts if a model is given.
class Language {
 public:
  using State = int32_t;  // in a text, and in its tokens

  static absl::StatusOr<Language> Make(const ConstrainOptions& options) {
    const Stopwatch stopwatch;
    ASSIGN_OR_RETURN(GrammarLanguage compiled, Compile(options));
    Language language(std::move(compiled), OptionOf(options));
    if (language.calls_ && !language.configurations_->has_start()) {
      return language.TooAmbiguous("where a text begins");
    }
    language.compile_ms_ = absl::ToDoubleMilliseconds(stopwatch.Elapsed());
    if (options.model.empty()) return language;
    RETURN_IF_ERROR(
        language.LoadTokens(options.model, options.names.Of("model")));
    RETURN_IF_ERROR(language.CheckMarker(options.start_after));
    return language;
  }
  absl::Status TooAmbiguous(std::string_view place) const {
    return InvalidArgument(option_, " is too ambiguous ", place,
                           ": there are more than ",
                           PushdownConfigurations::kMaxWays,
                           " ways to read it, or they take more than ",
                           PushdownConfigurations::kMaxSteps, " steps");
  }

  double compile_ms() const { return compile_ms_; }
  // Null if the language is an automaton that calls none.
  const PushdownAutomaton* calls() const { return calls_.get(); }
  int num_states() const {
    return calls_ ? calls_->num_states() : automaton_->num_states();
  }
  int num_classes() const {
    return calls_ ? calls_->num_classes() : automaton_->num_classes();
  }
  int64_t table_bytes() const {
    return calls_ ? calls_->table_bytes() : automaton_->table_bytes();
  }

  // Texts of bytes.
  int min_bytes() const {
    return calls_ ? configurations_->min_bytes(PushdownConfigurations::kStart)
                  : automaton_->min_bytes(ByteAutomaton::kStart);
  }
  PushdownConfigurations::MatchResult Match(std::string_view text) const {
    if (calls_) return configurations_->Match(text);
    return {automaton_->Match(text)};
  }
  std::vector<uint8_t> BytesAfter(State state) const {
    return calls_ ? configurations_->BytesAfter(state)
                  : automaton_->BytesAfter(state);
  }
  bool accepts(State state) const {
    return calls_ ? configurations_->accepts(state)
                  : automaton_->accepts(state);
  }
  // Nullopt if the text is too long, or the language too ambiguous to find one.
  std::optional<std::string> Sample(std::mt19937_64* random) const {
    return calls_ ? SampleShortText(*configurations_, kSampleBytes,
                                    kMaxSampleBytes, random)
                  : SampleShortText(*automaton_, kSampleBytes, kMaxSampleBytes,
                                    random);
  }

  // Texts of tokens. REQUIRES: a model.
  const Tokenizer* tokenizer() const { return text_.tokenizer.get(); }
  int vocab_size() const { return vocabulary_->inside.vocab_size(); }
  State FirstTokenState() const {
    return calls_ ? calls_constraint_->start() : constraint_->start();
  }
  // Returns a negative number if the token is illegal.
  State Advance(State state, TokenId token) const {
    return calls_ ? calls_constraint_->Advance(state, token)
                  : constraint_->Advance(state, token);
  }
  int64_t NumFirstTokens() const {
    if (calls_) {
      return std::ssize(
          calls_constraint_->LegalTokens(FirstTokenState(), kAnyRoom).tokens);
    }
    std::vector<TokenId> tokens;
    constraint_->LegalTokens(constraint_->start(), &tokens);
    return std::ssize(tokens);
  }
  int min_tokens() const {
    if (calls_) return accepts(0) ? 0 : calls_constraint_->MinRoom(false);
    return constraint_->min_tokens(constraint_->start());
  }

 private:
  static constexpr int32_t kAnyRoom = PushdownConstraint::kNever;

  Language(GrammarLanguage language, std::string_view option)
      : option_(option) {
    if (auto* const plain = std::get_if<ByteAutomaton>(&language)) {
      automaton_ = std::make_shared<const ByteAutomaton>(std::move(*plain));
      return;
    }
    calls_ = std::make_shared<const PushdownAutomaton>(
        std::get<PushdownAutomaton>(std::move(language)));
    configurations_ =
        std::make_unique<PushdownConfigurations>(calls_, calls_->bytes());
  }

  // `option` is how the directory was given.
  absl::Status LoadTokens(const std::string& directory,
                          const std::string& option) {
    ASSIGN_OR_RETURN(text_, LoadModelText(directory, option));
    vocabulary_ =
        std::make_shared<TokenVocabulary>(TokenBytesOf(*text_.tokenizer));
    const absl::Status status = MakeConstraint();
    return status.ok() ? status : Annotate(status, option);
  }

  // A marker that is a special token is in no text.
  absl::Status CheckMarker(const std::string& marker) const {
    const std::optional<TokenId> token = tokenizer()->PieceToId(marker);
    if (!token || !tokenizer()->is_special(*token)) return absl::OkStatus();
    return InvalidArgument(
        "--start-after must not be a special token of the model, which no text "
        "spells, got ",
        ShownInQuotes(marker));
  }

  absl::Status MakeConstraint() {
    if (calls_) {
      ASSIGN_OR_RETURN(calls_constraint_, PushdownConstraint::Make(
                                              calls_, vocabulary_,
                                              {.name = std::string(option_)}));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(TokenConstraint constraint,
                     TokenConstraint::Make(automaton_, vocabulary_));
    constraint_ = std::move(constraint);
    return absl::OkStatus();
  }

  std::string_view option_;
  // One of the two.
  std::shared_ptr<const ByteAutomaton> automaton_;
  std::shared_ptr<const PushdownAutomaton> calls_;
  std::unique_ptr<const PushdownConfigurations> configurations_;  // for calls_
  ModelText text_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::optional<TokenConstraint> constraint_;
  std::shared_ptr<const PushdownConstraint> calls_constraint_;
  double compile_ms_ = 0;
};

// Returns the bytes that may follow in a state, ascending.
std::vector<ByteRange> RangesAfter(const Language& language,
                                   Language::State state) {
  std::vector<ByteRange> ranges;
  for (const int byte : language.BytesAfter(state)) {
    if (ranges.empty() || ranges.back().last + 1 < byte) {
      ranges.push_back({byte, byte});
    }
    ranges.back().last = byte;
  }
  return ranges;
}

// Returns what may follow in a state: bytes, and the end of the text.
std::vector<std::string> Expected(const Language& language,
                                  Language::State state) {
  std::vector<std::string> expected;
  for (const ByteRange& range : RangesAfter(language, state)) {
    expected.push_back(ShownByte(static_cast<uint8_t>(range.first)));
    const std::string last = ShownByte(static_cast<uint8_t>(range.last));
    if (range.last == range.first + 1) expected.push_back(last);
    if (range.last > range.first + 1) expected.back() += " to " + last;
  }
  if (language.accepts(state)) expected.emplace_back("the end");
  return expected;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += i + 1 < parts.size() ? ", " : " or ";
    joined += parts[i];
  }
  return joined;
}

// Tokens of a text.
struct Spelling {
  std::vector<TokenId> tokens;
  std::string decoded;   // differs from the text if the tokenizer changes it
  size_t num_legal = 0;  // before the first illegal one
};

// The result for one text.
struct TextCheck {
  PushdownConfigurations::MatchResult match;
  std::optional<Spelling> spelling = {};  // with a model
};

absl::StatusOr<Spelling> Spell(const Language& language,
                               const std::string& text) {
  if (text.size() > kMaxTokenizedBytes) {
    return InvalidArgument("a text may have ", kMaxTokenizedBytes,
                           " bytes with a model, this one has ", text.size());
  }
  const Tokenizer& tokenizer = *language.tokenizer();
  Spelling spelling;
  ASSIGN_OR_RETURN(spelling.tokens, tokenizer.EncodeOutput(text));
  ASSIGN_OR_RETURN(spelling.decoded, tokenizer.Decode(spelling.tokens));
  Language::State state = language.FirstTokenState();
  for (const TokenId token : spelling.tokens) {
    state = language.Advance(state, token);
    if (state < 0) break;
    ++spelling.num_legal;
  }
  return spelling;
}

absl::StatusOr<TextCheck> Check(const Language& language,
                                const std::string& text) {
  TextCheck check = {.match = language.Match(text)};
  if (!check.match.is_known) {
    return language.TooAmbiguous(Concat("at byte ", check.match.num_matched,
                                        " of ", ShownInQuotes(text)));
  }
  if (language.tokenizer() == nullptr) return check;
  ASSIGN_OR_RETURN(check.spelling, Spell(language, text));
  return check;
}

// Returns what a model's tokens make of a text of the language.
std::string DescribeSpelling(const Language& language, const std::string& text,
                             const Spelling& spelling) {
  const size_t num_tokens = spelling.tokens.size();
  if (spelling.decoded != text) {
    return Concat("; but the tokenizer changes it to ",
                  ShownInQuotes(spelling.decoded));
  }
  if (spelling.num_legal < num_tokens) {
    const TokenId token = spelling.tokens[spelling.num_legal];
    return Concat(
        "; but token ", spelling.num_legal, " of its ", num_tokens, " tokens, ",
        ShownInQuotes(language.tokenizer()->Spelling(token)), ", is illegal");
  }
  return Concat("; ", num_tokens, num_tokens == 1 ? " token" : " tokens");
}

// Texts that were drawn.
struct Samples {
  std::vector<std::string> texts = {};
  int num_left_out = 0;
};

// Each returns a part of the output in words.
std::string WriteLanguage(const Language& language, const Samples& samples) {
  std::ostringstream out;
  out << "language  " << language.num_states()
      << (language.num_states() == 1 ? " state, " : " states, ");
  if (const PushdownAutomaton* const calls = language.calls()) {
    out << calls->num_calls() << (calls->num_calls() == 1 ? " call" : " calls")
        << " up to " << calls->max_depth() << " deep, ";
  }
  out << language.num_classes() << " classes of bytes, "
      << language.table_bytes() << " bytes, compiled in ";
  out.precision(3);
  out << language.compile_ms() << " ms; a text has at least "
      << language.min_bytes() << " bytes\n";
  if (language.tokenizer() != nullptr) {
    out << "tokens    " << language.NumFirstTokens() << " of "
        << language.vocab_size() << " may be the first; a text has at least "
        << language.min_tokens() << '\n';
  }
  for (const std::string& text : samples.texts) {
    out << "sample    " << ShownInQuotes(text) << '\n';
  }
  if (samples.num_left_out > 0) {
    out << "sample    " << samples.num_left_out << " of "
        << std::ssize(samples.texts) + samples.num_left_out
        << " are left out, which have more than " << kMaxSampleBytes << " bytes"
        << (language.calls() ? ", or too many ways to be read" : "") << '\n';
  }
  return out.str();
}

std::string WriteCheck(const Language& language, const std::string& text,
                       const TextCheck& check) {
  std::string out =
      Concat(check.match.in_language ? "yes       " : "no        ",
             ShownInQuotes(text));
  if (!check.match.in_language) {
    const std::string_view matched =
        std::string_view(text).substr(0, check.match.num_matched);
    const bool is_cut =
        matched.size() == text.size();  // it begins a text of the language
    out += is_cut ? Concat(": ends early, at byte ", matched.size())
                  : Concat(": leaves it at byte ", matched.size(), ", after ",
                           BytesInQuotes(matched));
    out += Concat(", where ", Joined(Expected(language, check.match.state)),
                  " may follow");
  } else if (check.spelling) {
    out += DescribeSpelling(language, text, *check.spelling);
  }
  return out + "\n";
}

// As WriteLanguage and WriteCheck, in JSON.
json::object LanguageJson(const Language& language, const Samples& samples) {
  json::object object = {{"states", language.num_states()},
                         {"byte_classes", language.num_classes()},
                         {"table_bytes", language.table_bytes()},
                         {"compile_ms", language.compile_ms()},
                         {"min_bytes", language.min_bytes()}};
  if (const PushdownAutomaton* const calls = language.calls()) {
    object["calls"] = calls->num_calls();
    object["max_depth"] = calls->max_depth();
  }
  if (language.tokenizer() != nullptr) {
    object["first_tokens"] = language.NumFirstTokens();
    object["min_tokens"] = language.min_tokens();
  }
  object["samples"] = json::array(samples.texts.begin(), samples.texts.end());
  if (samples.num_left_out > 0) {
    object["num_samples_left_out"] = samples.num_left_out;
  }
  return {{"language", std::move(object)}};
}

json::object CheckJson(const Language& language, const std::string& text,
                       const TextCheck& check) {
  json::object object = {{"text", text},
                         {"in_language", check.match.in_language}};
  if (!check.match.in_language) {
    object["num_matched_bytes"] = check.match.num_matched;
    json::array next;
    for (const ByteRange& range : RangesAfter(language, check.match.state)) {
      next.push_back(json::array{range.first, range.last});
    }
    object["next_bytes"] = std::move(next);
    object["may_end"] = language.accepts(check.match.state);
  }
  if (check.spelling) {
    const Spelling& spelling = *check.spelling;
    object["tokens"] =
        json::array(spelling.tokens.begin(), spelling.tokens.end());
    object["num_legal_tokens"] = spelling.num_legal;
    if (spelling.decoded != text) object["decoded"] = spelling.decoded;
  }
  return object;
}

// Reads {"text": "..."}.
absl::StatusOr<std::string> ReadTextLine(const std::string& line) {
  if (line.size() > kMaxLineBytes) {
    return InvalidArgument("a line may have ", kMaxLineBytes,
                           " bytes, this one has more");
  }
  std::optional<std::string> text;
  absl::Status status;
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    if (!status.ok()) return;
    const std::string name = Unquoted(key);
    status = name == "text"
                 ? Read(name, value, &text)
                 : InvalidArgument("unknown field ", ShownInQuotes(name),
                                   "; the field is \"text\"");
  };
  ASSIGN_OR_RETURN(const JsonText json, ScanJson(line, 1, take));
  RETURN_IF_ERROR(status);
  if (!json.is_object()) {
    return InvalidArgument("a line must be {\"text\": ...}, got ",
                           Shown(json.text));
  }
  if (!text) return InvalidArgument("field \"text\" is missing");
  return *std::move(text);
}

class ConstrainRun {
 public:
  ConstrainRun(const ConstrainOptions& options, const Language& language,
               Output& output)
      : options_(options), language_(language), output_(output) {}

  void DescribeLanguage() {
    std::mt19937_64 random(options_.seed);
    Samples samples;
    for (int i = 0; i < options_.num_samples; ++i) {
      if (auto sample = language_.Sample(&random)) {
        samples.texts.push_back(*std::move(sample));
      } else {
        ++samples.num_left_out;
      }
    }
    output_.Write(options_.json
                      ? WriteJson(LanguageJson(language_, samples)) + "\n"
                      : WriteLanguage(language_, samples));
    output_.Flush();
  }

  absl::Status CheckText(const std::string& text) {
    ASSIGN_OR_RETURN(const TextCheck check, Check(language_, text));
    if (!check.match.in_language) ++num_outside_;
    output_.Write(options_.json
                      ? WriteJson(CheckJson(language_, text, check)) + "\n"
                      : WriteCheck(language_, text, check));
    output_.Flush();
    return absl::OkStatus();
  }

  // Checks a line of a file, JSON.
  absl::Status CheckLine(const std::string& line) {
    ASSIGN_OR_RETURN(const std::string text, ReadTextLine(line));
    return CheckText(text);
  }

  int64_t num_outside() const { return num_outside_; }

 private:
  const ConstrainOptions& options_;
  const Language& language_;
  Output& output_;
  int64_t num_outside_ = 0;  // texts
};

absl::Status CheckOptions(const ConstrainOptions& options) {
  const int num_languages = NumKinds(options);
  if (num_languages != 1 &&
      (num_languages != 0 || options.must_contain.empty())) {
    return InvalidArgument(
        "--regex, --choice, --json-schema, --grammar, --must-contain or "
        "--items must be given, one of these, got ",
        num_languages == 0 ? "none" : Concat(num_languages));
  }
  if (std::ssize(options.must_contain) > kMaxContainedWords) {
    return InvalidArgument("--must-contain must be given at most ",
                           kMaxContainedWords, " times, got ",
                           options.must_contain.size());
  }
  for (size_t i = 0; i < options.must_contain.size(); ++i) {
    if (options.must_contain[i].empty()) {
      return InvalidArgument("--must-contain: text ", i + 1,
                             " must not be empty");
    }
    if (!IsUtf8(options.must_contain[i])) {
      return InvalidArgument("--must-contain: text ", i + 1, " is not UTF-8");
    }
  }
  if (!options.items.empty() && !options.must_contain.empty()) {
    return InvalidArgument("--items and --must-contain exclude each other");
  }
  if (options.no_spaces && options.json_schema.empty()) {
    return InvalidArgument("--no-spaces needs --json-schema");
  }
  if (!options.whitespace.empty() && options.json_schema.empty()) {
    return InvalidArgument("--whitespace needs --json-schema");
  }
  if (options.no_spaces && !options.whitespace.empty()) {
    return InvalidArgument("--no-spaces and --whitespace exclude each other");
  }
  const absl::Status whitespace = CheckWhitespaceText(WhitespaceOf(options));
  if (!whitespace.ok()) {
    return InvalidArgument("--whitespace ", Message(whitespace));
  }
  if (!options.items.empty() && !options.start_after.empty()) {
    return InvalidArgument("--items and --start-after exclude each other");
  }
  if (!options.texts.empty() && !options.input.empty()) {
    return InvalidArgument("give texts or ", options.names.Of("input"),
                           ", not both");
  }
  if (!IsUtf8(options.start_after)) {
    return InvalidArgument("--start-after is not UTF-8");
  }
  if (std::ssize(options.start_after) > kMaxStartAfterBytes) {
    return InvalidArgument("--start-after must have at most ",
                           kMaxStartAfterBytes, " bytes, got ",
                           options.start_after.size());
  }
  for (size_t i = 0; i < options.choices.size(); ++i) {
    if (!IsUtf8(options.choices[i])) {
      return InvalidArgument("--choice: text ", i + 1, " is not UTF-8");
    }
  }
  for (size_t i = 0; i < options.texts.size(); ++i) {
    if (!IsUtf8(options.texts[i])) {
      return InvalidArgument("text ", i + 1, " is not UTF-8");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> Constrain(const ConstrainOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<LineReader> reader;
  const bool reads_stdin = options.texts == std::vector<std::string>{"-"};
  if (reads_stdin || !options.input.empty()) {
    absl::StatusOr<std::unique_ptr<LineReader>> opened =
        LineReader::Open(reads_stdin ? "-" : options.input);
    if (!opened.ok()) {
      return Annotate(opened.status(), options.names.Of("input"));
    }
    reader = *std::move(opened);
  }
  if (!options.items.empty()) {
    return ConstrainToItems(options, reader.get());
  }
  ASSIGN_OR_RETURN(const Language language, Language::Make(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  ConstrainRun run(options, language, *output);
  run.DescribeLanguage();
  int64_t num_outside = 0;
  if (reader != nullptr) {
    ASSIGN_OR_RETURN(num_outside, CheckLines(*reader, options.json, *output,
                                             [&](const std::string& line) {
                                               return run.CheckLine(line);
                                             }));
  } else {
    for (const std::string& text : options.texts) {
      RETURN_IF_ERROR(run.CheckText(text));
    }
  }
  RETURN_IF_ERROR(output->Close());
  num_outside += run.num_outside();
  return num_outside > 0 ? kSomeFailed : kAllSucceeded;
}

const char kConstrainExamples[] =
    R"(Examples:
  espalier constrain --regex '[0-9]{4}-[0-9]{2}-[0-9]{2}' 2026-11-29 26-11-29
  espalier constrain --choice yes --choice no --json --input answers.jsonl
  espalier constrain --regex '(Oui|Non), .*' -m models/en-fr "Oui, il pleut."
  espalier constrain --json-schema point.json '{"x": 1, "y": 2.5}' '{"y": 2}'
  espalier constrain --grammar json.gbnf '{"a": [1, 2]}'
  espalier constrain --must-contain Paris --must-contain 2026 'Paris, 2026'
  espalier constrain --items ids.jsonl '[17, 4095, 3]'
  espalier constrain --items songs.jsonl -m DIR Yesterday
  espalier constrain --choice Yes --start-after '</think>' 'Hm.</think>Yes'

Compiles the language to an automaton over bytes, and prints its size and a few
random texts of it. Of each text it says whether it is in the language; if not,
the byte where it leaves it, and what may follow there.

A regular expression must match the whole text. Its syntax is JavaScript's
(ECMA-262, flag u) without look-around, back-references, word boundaries and
flags: an error names such a construct and its byte. docs/constraints.md has
the list.

A JSON Schema is of draft 2020-12, 7, 6 or 4. Its texts are those of values
that satisfy it, with the keys that it names in its order; an error has the
JSON pointer of a keyword that cannot be enforced.

A grammar is in GBNF, the format of llama.cpp, and its texts are those of the
rule "root". A rule may lead back to itself, up to 64 within one another.

A catalogue of items is JSON lines, each an item: a list of token ids, or a text
with -m; or what numpy.save writes of an array of ids, an item a row. Of each
argument, or line, which is as those of the catalogue, it says whether it is
one of the items.

With -m the model's tokenizer spells each text, and a text of the language that
it changes, by a normalizer say, is shown with what it becomes.

A line in:   {"text": "yes"}
Lines out, with --json:  {"language": {"states": ..., "byte_classes": ...,
  "table_bytes": ..., "compile_ms": ..., "min_bytes": ..., "samples": [...]}},
  with "num_samples_left_out" if some have more than 4096 bytes, and "calls" and
  "max_depth" of a grammar whose rules lead back to themselves,
  then for each text {"text": ..., "in_language": true} or {"text": ...,
  "in_language": false, "num_matched_bytes": ..., "next_bytes": [[first, last],
  ...], "may_end": ...}; with -m also "tokens", "num_legal_tokens" and, if the
  tokenizer changes the text, "decoded".

Exit code: 0 if every text is in the language, 1 if one is not or a line has
none, 2 if it could not run.)";

}  // namespace espalier::cli
