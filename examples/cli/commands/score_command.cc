#include "examples/cli/commands/score_command.h"

#include <algorithm>
#include <iomanip>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "espalier/generator.h"
#include "espalier/tokenizer.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "examples/cli/runtime/runtime.h"
#include "request/json/read_prompt.h"
#include "request/read_json_text.h"

namespace espalier::cli {
namespace {

// A line, or the arguments.
struct ScoreLine {
  std::string id;  // JSON
  std::optional<std::string> prompt;
  std::optional<std::vector<int64_t>> prompt_tokens;
  std::string template_name;
  std::string decoder_prompt;
  bool raw = false;
  bool append_eos = false;
  std::vector<TextOrTokens> continuations;
};

absl::StatusOr<TextOrTokens> ReadContinuation(const std::string& name,
                                              const JsonText& json) {
  if (json.is_string()) return TextOrTokens(Unquoted(json.text));
  std::vector<int64_t> ids;
  if (!json.is_array()) {
    return InvalidArgument(name, " must be a string or token ids, got ",
                           Shown(json.text));
  }
  RETURN_IF_ERROR(Read(name, json, &ids));
  std::vector<TokenId> tokens;
  RETURN_IF_ERROR(ToTokenIds(name, ids, &tokens));
  return TextOrTokens(std::move(tokens));
}

absl::Status ReadContinuations(const JsonText& json, ScoreLine* line) {
  if (!json.is_array()) {
    return InvalidArgument("continuations must be a list, got ",
                           Shown(json.text));
  }
  line->continuations.clear();
  for (JsonItems items(json.text); items.Next();) {
    const std::string name =
        Concat("continuations[", line->continuations.size(), "]");
    ASSIGN_OR_RETURN(line->continuations.emplace_back(),
                     ReadContinuation(name, JsonText{items.value()}));
  }
  return absl::OkStatus();
}

absl::Status ReadField(const std::string& name, const JsonText& json,
                       ScoreLine* line) {
  if (name == "id") {
    if (!json.is_string() && !json.is_number()) {
      return InvalidArgument("id must be a string or a number, got ",
                             Shown(json.text));
    }
    line->id = json.text;
    return absl::OkStatus();
  }
  if (name == "prompt") return Read(name, json, &line->prompt);
  if (name == "prompt_tokens") return Read(name, json, &line->prompt_tokens);
  if (name == "template") return Read(name, json, &line->template_name);
  if (name == "decoder_prompt") return Read(name, json, &line->decoder_prompt);
  if (name == "raw") return Read(name, json, &line->raw);
  if (name == "append_eos") return Read(name, json, &line->append_eos);
  if (name == "continuations") return ReadContinuations(json, line);
  return InvalidArgument("unknown field ", ShownInQuotes(name),
                         ": there are id, ",
                         "prompt, prompt_tokens, template, raw, ",
                         "decoder_prompt, append_eos and continuations");
}

// Lets fields of a line replace options that they exclude, where `line` has
// both.
// Errors: kInvalidArgument naming fields that exclude each other.
absl::Status SettleForm(bool has_raw, bool has_template, ScoreLine* line) {
  const bool is_raw = has_raw && line->raw;
  const bool is_templated = has_template && !line->template_name.empty();
  if (line->prompt_tokens && (is_raw || is_templated)) {
    return InvalidArgument(is_raw ? "raw" : "template", " needs a prompt that ",
                           "is text, got prompt_tokens");
  }
  if (is_raw && is_templated) {
    return InvalidArgument("raw must be false with a template, got true and ",
                           ShownInQuotes(line->template_name));
  }
  if (is_raw) line->template_name.clear();
  if (is_templated) line->raw = false;
  return absl::OkStatus();
}

// The options are already in `line`.
absl::Status ReadLine(std::string_view text, ScoreLine* line) {
  if (text.size() > kMaxLineBytes) {
    return InvalidArgument("a line may have ", kMaxLineBytes,
                           " bytes, this one has more");
  }
  absl::Status status;
  bool has_raw = false;
  bool has_template = false;
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    if (!status.ok() || value.is_null()) return;
    const std::string name = Unquoted(key);
    has_raw = has_raw || name == "raw";
    has_template = has_template || name == "template";
    status = ReadField(name, value, line);
  };
  ASSIGN_OR_RETURN(const JsonText json, ScanJson(text, 1, take));
  if (!json.is_object()) {
    return InvalidArgument("a line must be a JSON object, got ",
                           Shown(json.text));
  }
  RETURN_IF_ERROR(status);
  if (line->prompt.has_value() == line->prompt_tokens.has_value()) {
    return InvalidArgument("prompt or prompt_tokens must be there, one of the ",
                           "two, got ", line->prompt ? "both" : "none");
  }
  return SettleForm(has_raw, has_template, line);
}

absl::StatusOr<ScoreRequest> RequestOf(const ScoreLine& line) {
  ScoreRequest request = {.prompt = Prompt(std::string()),
                          .continuations = line.continuations,
                          .append_eos = line.append_eos};
  request.params.decoder_prompt = line.decoder_prompt;
  if (line.prompt_tokens) {
    std::vector<TokenId> tokens;
    RETURN_IF_ERROR(ToTokenIds("prompt_tokens", *line.prompt_tokens, &tokens));
    request.prompt = Prompt(std::move(tokens));
  } else if (line.raw) {
    request.prompt = Prompt::Raw(*line.prompt);
  } else {
    request.prompt = Prompt::Templated(*line.prompt, line.template_name);
  }
  return request;
}

// The text of a continuation, or of its tokens; nullopt if these have none.
std::optional<std::string> TextOf(const ScoreLine& line, size_t i,
                                  const std::vector<TokenId>& tokens,
                                  const Tokenizer* tokenizer) {
  if (const auto* text = std::get_if<std::string>(&line.continuations[i])) {
    return *text;
  }
  if (tokenizer == nullptr) return std::nullopt;
  std::string text = tokenizer->Decode(tokens).value_or("");
  if (text.empty()) return std::nullopt;
  return text;
}

template <typename Items, typename Append>
void AppendList(const Items& items, const Append& append, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += ", ";
    append(items[i]);
  }
  *out += ']';
}

template <typename Id>
void AppendIds(const std::vector<Id>& ids, std::string* out) {
  AppendList(
      ids, [&](Id id) { AppendJson(int64_t{id}, out); }, out);
}

std::string WriteLine(const ScoreLine& line, const Generation& answer,
                      const Tokenizer* tokenizer) {
  std::string json = Concat(R"({"id": )", line.id, R"(, "scores": [)");
  for (size_t i = 0; i < answer.continuations.size(); ++i) {
    const ContinuationScore& score = answer.continuations[i];
    json += i > 0 ? ", {" : "{";
    const auto text = TextOf(line, i, score.tokens, tokenizer);
    if (text) {
      json += R"("text": )";
      AppendJson(std::string_view(*text), &json);
      json += ", ";
    }
    json += R"("cum_log_prob": )";
    AppendJson(score.cum_log_prob, &json);
    json += score.is_greedy ? R"(, "is_greedy": true, "tokens": )"
                            : R"(, "is_greedy": false, "tokens": )";
    AppendIds(score.tokens, &json);
    json += R"(, "log_probs": )";
    AppendList(
        score.log_probs, [&](float value) { AppendJson(value, &json); }, &json);
    json += R"(, "ranks": )";
    AppendIds(score.ranks, &json);
    json += '}';
  }
  return json + Concat(R"(], "usage": {"prompt_tokens": )",
                       answer.usage.num_prompt_tokens, R"(, "cached_tokens": )",
                       answer.usage.num_cached_tokens, "}}\n");
}

std::string WriteError(const ScoreLine& line, const absl::Status& error) {
  std::string json = Concat(R"({"id": )", line.id, R"(, "error": )");
  AppendJson(std::string_view(Message(error)), &json);
  return json + "}\n";
}

// A line above the table of one of several prompts.
std::string WriteHeading(const ScoreLine& line) {
  if (line.prompt) {
    return Concat(line.id, ": ", ShownInQuotes(*line.prompt), "\n");
  }
  std::string ids;
  AppendIds(*line.prompt_tokens, &ids);
  return Concat(line.id, ": ", Shown(ids), "\n");
}

// A continuation for people to read: its text in quotes, or its tokens.
std::string NameOf(const ScoreLine& line, size_t i,
                   const std::vector<TokenId>& tokens,
                   const Tokenizer* tokenizer) {
  const auto text = TextOf(line, i, tokens, tokenizer);
  if (text) return ShownInQuotes(*text);
  std::string ids;
  AppendIds(tokens, &ids);
  return Shown(ids);
}

// Best first.
std::string WriteTable(const ScoreLine& line, const Generation& answer,
                       const Tokenizer* tokenizer) {
  const std::vector<ContinuationScore>& scores = answer.continuations;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return scores[a].cum_log_prob > scores[b].cum_log_prob;
  });
  std::ostringstream table;
  table << std::fixed << std::setprecision(4)
        << "  log prob  a token  tokens  greedy  continuation\n";
  for (const size_t i : order) {
    const ContinuationScore& score = scores[i];
    const double num_tokens = static_cast<double>(score.tokens.size());
    table << std::setw(10) << score.cum_log_prob << ' ' << std::setw(8)
          << score.cum_log_prob / num_tokens << ' ' << std::setw(7)
          << score.tokens.size() << "  " << std::setw(6)
          << (score.is_greedy ? "yes" : "no") << "  "
          << NameOf(line, i, score.tokens, tokenizer) << '\n';
  }
  return table.str();
}

// Scores lines, one after the other.
class ScoreRun {
 public:
  ScoreRun(const ScoreOptions& options, Generator& generator, Output& output)
      : options_(options), generator_(generator), output_(output) {}

  absl::Status RunArguments();
  absl::Status RunLines(LineReader& reader);
  int exit_code() const {
    return num_failed_ > 0 ? kSomeFailed : kAllSucceeded;
  }

 private:
  ScoreLine NewLine() const {
    ScoreLine line;
    line.id = std::to_string(num_lines_);
    line.template_name = options_.runtime.template_name;
    line.decoder_prompt = options_.decoder_prompt;
    line.raw = options_.raw;
    line.append_eos = options_.append_eos;
    return line;
  }
  absl::StatusOr<Generation> Run(const ScoreLine& line) {
    ASSIGN_OR_RETURN(ScoreRequest request, RequestOf(line));
    return generator_.Score(std::move(request));
  }
  void Write(const ScoreLine& line, const Generation& answer) {
    const Tokenizer* const tokenizer = generator_.tokenizer().get();
    output_.Write(options_.json ? WriteLine(line, answer, tokenizer)
                                : WriteTable(line, answer, tokenizer));
    output_.Flush();
  }
  // `place` names the line, for errors.
  void RunLine(const std::string& text, const std::string& place);

  const ScoreOptions& options_;
  Generator& generator_;
  Output& output_;
  int64_t num_lines_ = 0;
  int64_t num_failed_ = 0;
};

absl::Status ScoreRun::RunArguments() {
  ScoreLine line = NewLine();
  line.prompt = options_.texts[0];
  for (const std::string& text : std::span(options_.texts).subspan(1)) {
    line.continuations.emplace_back(text);
  }
  ASSIGN_OR_RETURN(const Generation answer, Run(line));
  Write(line, answer);
  return absl::OkStatus();
}

void ScoreRun::RunLine(const std::string& text, const std::string& place) {
  ScoreLine line = NewLine();
  ++num_lines_;
  absl::Status status = ReadLine(text, &line);
  if (status.ok()) {
    const absl::StatusOr<Generation> answer = Run(line);
    if (answer.ok()) {
      if (!options_.json) output_.Write(WriteHeading(line));
      return Write(line, *answer);
    }
    status = answer.status();
  }
  ++num_failed_;
  if (options_.json) output_.Write(WriteError(line, status));
  output_.Flush();
  PrintToStderr(Concat("espalier: ", place, ": ", Message(status), "\n"));
}

absl::Status ScoreRun::RunLines(LineReader& reader) {
  int64_t line_number = 0;
  while (!output_.failed()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader.Read());
    if (lines.empty()) break;
    for (const std::string& line : lines) {
      ++line_number;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      RunLine(line, Concat(reader.name(), ":", line_number));
    }
  }
  if (num_lines_ == 0) PrintNote("no lines in " + reader.name());
  return absl::OkStatus();
}

absl::Status CheckOptions(const ScoreOptions& options) {
  if (options.texts.size() == 1) {
    return InvalidArgument("continuations must follow the prompt, got none");
  }
  if (!options.texts.empty() && !options.input.empty()) {
    return InvalidArgument(options.runtime.names.Of("input"),
                           " and texts are two inputs: give one");
  }
  if (options.raw && !options.runtime.template_name.empty()) {
    return InvalidArgument("--raw and --template exclude each other, got ",
                           "--template ",
                           InQuotes(options.runtime.template_name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> Score(const ScoreOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<LineReader> reader;
  if (options.texts.empty()) {
    absl::StatusOr<std::unique_ptr<LineReader>> opened =
        LineReader::Open(options.input.empty() ? "-" : options.input);
    if (!opened.ok()) {
      return Annotate(opened.status(), options.runtime.names.Of("input"));
    }
    reader = *std::move(opened);
  }
  ASSIGN_OR_RETURN(const GeneratorOptions generator_options,
                   ReadGeneratorOptions(options.runtime));
  RETURN_IF_ERROR(CheckReadsTokens(options.runtime.model));
  absl::StatusOr<Generator> generator =
      Generator::Load(options.runtime.model, generator_options);
  if (!generator.ok()) return LoadError(options.runtime, generator.status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  ScoreRun run(options, *generator, *output);
  RETURN_IF_ERROR(reader == nullptr ? run.RunArguments()
                                    : run.RunLines(*reader));
  RETURN_IF_ERROR(output->Close());
  return run.exit_code();
}

const char kScoreExamples[] =
    R"(Examples:
  espalier score -m models/en-fr "Where is the station?" \
    "Où est la gare ?" "Où se trouve la gare ?" --append-eos
  espalier score -m models/en-fr --json --input questions.jsonl

The scores are exact: sums of the model's own log-probabilities (nats) of the
tokens of each continuation. The prompt is computed once, and so is what
continuations begin with together, so that 16 choices cost little more than one.
A continuation is greedy if each of its tokens is the model's most likely one.

A text continues its prompt: its tokens are those of both as one text, less
those of the prompt. So begin it with the space that belongs to it: "Paris is
in" and " France". Where the whole text does not begin with the prompt's tokens,
as "unable" does not with those of "un", the continuation has the tokens of
"able" within a word: no space is added. After a template that puts something
behind its text, after prompt_tokens, and with an encoder, it is tokenized by
itself, or after the decoder prompt if there is one.

A line in:   {"id": 1, "prompt": "It rains.", "continuations": ["Il pleut."]}
  with "prompt_tokens" instead of "prompt", lists of token ids among the
  continuations, and "template", "raw", "decoder_prompt" and "append_eos", which
  replace these options for that line. Without "id" it is the number of the
  line, counted from 0 without blank lines.
A line out, with --json:  {"id": 1, "scores": [{"text": ..., "cum_log_prob":
  ..., "is_greedy": ..., "tokens": [...], "log_probs": [...], "ranks": [...]}],
  "usage": {...}}, scores in the order of the continuations; "text" is left out
  where tokens have none
  or                      {"id": 1, "error": "..."}.
Without --json each line gives a table, best first, below its id and prompt.
Errors of lines are told on stderr, with the number of the line.

Exit code: 0 if every line succeeded, 1 if some failed, 2 if it could not run.)";

}  // namespace espalier::cli
