#include "examples/cli/commands/tokenize_command.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "espalier/chat_prompts.h"
#include "espalier/model_text.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "examples/cli/runtime/load_model_text.h"
#include "request/json/request_json.h"
#include "request/read_json_text.h"
#include "text/chat/final_message.h"

namespace espalier::cli {
namespace {

// Errors: kInvalidArgument naming the byte, or an object of too many members
// (request/read_json_text.h).
absl::StatusOr<json::value> ReadLine(const std::string& line) {
  const auto pass = [](int, std::string_view, const JsonText&) {};
  ASSIGN_OR_RETURN(const JsonText text, ScanJson(line, 1, pass));
  return ReadAny("a line", text);
}

// Returns the option for lines with field `key`, or the name of the expected
// field.
std::string HintAtField(std::string_view key, std::string_view field) {
  if (key == "tokens" && field == "text") return "; --decode takes tokens";
  if (key == "messages") return "; --chat takes messages";
  if (key == "text" && field == "tokens") {
    return "; a text is taken without --decode";
  }
  return Concat("; the field is \"", field, "\"");
}

// The only field of a line, which has this name.
absl::StatusOr<const json::value*> OnlyField(const json::value& line,
                                             const char* field) {
  if (!line.is_object()) {
    return InvalidArgument("a line must be {\"", field, "\": ...}, got ",
                           Shown(&line));
  }
  const json::object& object = line.get_object();
  for (const auto& [key, value] : object) {
    if (std::string_view(key) != field) {
      return InvalidArgument("unknown field ", ShownInQuotes(key),
                             HintAtField(key, field));
    }
  }
  const json::value* const value = object.if_contains(field);
  if (value == nullptr) {
    return InvalidArgument("field \"", field, "\" is missing");
  }
  return value;
}

absl::StatusOr<TokenId> ReadToken(const json::value& value, size_t index,
                                  const Tokenizer& tokenizer) {
  const int64_t token = value.is_int64() ? value.get_int64()
                                         : std::numeric_limits<int64_t>::min();
  if (token < 0 || token >= tokenizer.vocab_size()) {
    return InvalidArgument("tokens[", index, "] must be an integer in [0, ",
                           tokenizer.vocab_size() - 1, "], got ",
                           Shown(&value));
  }
  return static_cast<TokenId>(token);
}

absl::StatusOr<std::string> ReadText(const json::value& line) {
  ASSIGN_OR_RETURN(const json::value* text, OnlyField(line, "text"));
  if (text->is_string()) return std::string(text->get_string());
  return InvalidArgument("text must be a string, got ", Shown(text));
}

// The messages of a line, as requests have them, or a text as the only one.
absl::StatusOr<ChatInputs> ReadChat(const std::string& line,
                                    json::value value) {
  if (value.is_object() && value.get_object().contains("text")) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(value));
    return ChatInputs{.messages =
                          json::array{{{"role", "user"}, {"content", text}}}};
  }
  if (value.is_object()) value.get_object().erase("continue_final_message");
  RETURN_IF_ERROR(OnlyField(value, "messages").status());
  ASSIGN_OR_RETURN(RequestBody body, ParseRequestLine(line).body);
  ChatInputs inputs = {.messages = *std::move(body.messages)};
  RETURN_IF_ERROR(SettleFinalMessage(body.continue_final_message,
                                     /*adds_prompt=*/nullptr, &inputs));
  return inputs;
}

const char* ExampleOfALine(bool decode) {
  return decode ? R"({"tokens": [7, 8]})" : R"({"text": "It rains."})";
}

// Converts each line to tokens, or back to text.
class LineConverter {
 public:
  // `chat` is null but with --chat. All outlive this.
  LineConverter(const TokenizeOptions& options, const Tokenizer& tokenizer,
                const ChatPrompts* chat)
      : options_(options), tokenizer_(tokenizer), chat_(chat) {}

  absl::StatusOr<json::value> Convert(const std::string& line) const {
    if (line.size() > kMaxLineBytes) {
      return InvalidArgument("a line may have ", kMaxLineBytes,
                             " bytes, this one has more");
    }
    const absl::StatusOr<json::value> value = ReadLine(line);
    if (!value.ok()) {
      return MakeError(value.status().code(), Message(value.status()),
                       "; a line is ", ExampleOfALine(options_.decode),
                       ", for instance");
    }
    if (chat_ != nullptr) return EncodeMessages(line, *value);
    return options_.decode ? Decode(*value) : Encode(*value);
  }

 private:
  // The tokens, and what each stands for, of which not all are characters.
  json::object Answer(const std::vector<TokenId>& tokens) const {
    json::object answer = {
        {"tokens", json::array(tokens.begin(), tokens.end())}};
    if (!options_.pieces) return answer;
    json::array pieces;
    for (const TokenId token : tokens) {
      pieces.emplace_back(tokenizer_.Spelling(token));
    }
    answer["pieces"] = std::move(pieces);
    return answer;
  }

  absl::StatusOr<json::value> Encode(const json::value& line) const {
    ASSIGN_OR_RETURN(const std::string text, ReadText(line));
    ASSIGN_OR_RETURN(
        const std::vector<TokenId> tokens,
        tokenizer_.Encode(text, {.parse_special = options_.special}));
    return json::value(Answer(tokens));
  }

  absl::StatusOr<json::value> EncodeMessages(const std::string& line,
                                             const json::value& value) const {
    ASSIGN_OR_RETURN(const ChatInputs inputs, ReadChat(line, value));
    ASSIGN_OR_RETURN(const jinja::Text rendered, chat_->Render(inputs));
    ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                     chat_->Encode(rendered));
    json::object result = Answer(tokens);
    if (options_.rendered) result["rendered"] = rendered.bytes();
    return json::value(std::move(result));
  }

  absl::StatusOr<json::value> Decode(const json::value& line) const {
    ASSIGN_OR_RETURN(const json::value* list, OnlyField(line, "tokens"));
    if (!list->is_array()) {
      return InvalidArgument("tokens must be a list of integers, got ",
                             Shown(list));
    }
    const json::array& array = list->get_array();
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < array.size(); ++i) {
      ASSIGN_OR_RETURN(const TokenId token, ReadToken(array[i], i, tokenizer_));
      tokens.push_back(token);
    }
    ASSIGN_OR_RETURN(const std::string text,
                     tokenizer_.Decode(tokens, {.show_special = true}));
    return json::value{{"text", text}};
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  const ChatPrompts* const chat_;
};

absl::Status CheckOptions(const TokenizeOptions& options) {
  if (options.decode && options.special) {
    return InvalidArgument(
        "--decode shows special tokens anyway, and --special is of the other "
        "way");
  }
  if (options.chat && (options.decode || options.special)) {
    return InvalidArgument("--chat and ",
                           options.decode ? "--decode" : "--special",
                           " exclude each other");
  }
  if (options.decode && options.pieces) {
    return InvalidArgument("--pieces shows what a text becomes, and --decode ",
                           "is of the other way");
  }
  if (options.rendered && !options.chat) {
    return InvalidArgument("--rendered needs --chat");
  }
  if (!options.texts.empty() && !options.input.empty()) {
    return InvalidArgument("give texts or --input, not both");
  }
  return absl::OkStatus();
}

bool IsBlank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

// The line that arguments stand for with --decode: "7", "8" for
// {"tokens": [7, 8]}.
absl::StatusOr<std::string> LineOfIds(const std::vector<std::string>& texts) {
  json::array tokens;
  for (const std::string& text : texts) {
    int64_t token = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, token);
    if (error != std::errc() || rest != end) {
      return InvalidArgument("with --decode an argument must be a token id, ",
                             "got ", ShownInQuotes(text));
    }
    tokens.emplace_back(token);
  }
  return WriteJson(json::object{{"tokens", std::move(tokens)}});
}

// The lines that arguments stand for.
absl::StatusOr<std::vector<std::string>> LinesOfArguments(
    const TokenizeOptions& options) {
  std::vector<std::string> lines;
  if (options.decode) {
    ASSIGN_OR_RETURN(lines.emplace_back(), LineOfIds(options.texts));
    return lines;
  }
  for (size_t i = 0; i < options.texts.size(); ++i) {
    if (!IsUtf8(options.texts[i])) {
      return InvalidArgument("text ", i + 1, " is not UTF-8");
    }
    lines.push_back(WriteJson(json::object{{"text", options.texts[i]}}));
  }
  return lines;
}

// Converts lines, and writes an answer for each.
class TokenizeRun {
 public:
  // `name`: the source of the lines, for errors.
  TokenizeRun(const LineConverter& converter, std::string name, Output& output)
      : converter_(converter), name_(std::move(name)), output_(output) {}

  void Convert(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) ConvertLine(line);
    output_.Flush();
  }

  // To the end of what `reader` reads.
  absl::Status Convert(LineReader& reader) {
    while (!output_.failed()) {
      ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader.Read());
      if (lines.empty()) break;
      Convert(lines);
    }
    return absl::OkStatus();
  }

  int64_t num_read() const { return num_read_; }  // blank lines not counted

  int exit_code() const {
    if (num_failed_ == 0) return kAllSucceeded;
    return num_failed_ < num_read_ ? kSomeFailed : kNothingRan;
  }

 private:
  void ConvertLine(const std::string& line) {
    ++line_number_;
    if (IsBlank(line)) return;
    ++num_read_;
    const absl::StatusOr<json::value> result = converter_.Convert(line);
    if (result.ok()) {
      output_.Write(WriteJson(*result) + "\n");
      return;
    }
    ++num_failed_;
    // In its place, so that line n of the output is of line n of the input,
    // blank lines not counted.
    output_.Write(WriteJson(json::object{{"error", Message(result.status())}}) +
                  "\n");
    PrintToStderr(Concat("espalier: ", name_, ":", line_number_, ": ",
                         Message(result.status()), "\n"));
  }

  const LineConverter& converter_;
  const std::string name_;
  Output& output_;
  int64_t line_number_ = 0;
  int64_t num_read_ = 0;
  int64_t num_failed_ = 0;
};

absl::StatusOr<int> TokenizeArguments(const LineConverter& converter,
                                      const TokenizeOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                   LinesOfArguments(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  TokenizeRun run(converter, "arguments", *output);
  run.Convert(lines);
  RETURN_IF_ERROR(output->Close());
  return run.exit_code();
}

absl::StatusOr<int> TokenizeLines(const LineConverter& converter,
                                  const TokenizeOptions& options) {
  const absl::StatusOr<std::unique_ptr<LineReader>> opened =
      LineReader::Open(options.input.empty() ? "-" : options.input);
  if (!opened.ok()) {
    return Annotate(opened.status(), options.names.Of("input"));
  }
  LineReader* const reader = opened->get();
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  TokenizeRun run(converter, reader->name(), *output);
  RETURN_IF_ERROR(run.Convert(*reader));
  if (run.num_read() == 0) PrintNote("no lines in " + reader->name());
  RETURN_IF_ERROR(output->Close());
  return run.exit_code();
}

}  // namespace

absl::StatusOr<int> Tokenize(const TokenizeOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const ModelText text,
                   LoadModelText(options.model, options.names.Of("model")));
  std::unique_ptr<const ChatPrompts> chat;
  if (options.chat) {
    ASSIGN_OR_RETURN(
        chat, ChatPrompts::Load(options.model, text.tokenizer, "--chat"));
  }
  const LineConverter converter(options, *text.tokenizer, chat.get());
  const bool reads_lines =
      options.texts.empty() || options.texts == std::vector<std::string>{"-"};
  return reads_lines ? TokenizeLines(converter, options)
                     : TokenizeArguments(converter, options);
}

const char kTokenizeExamples[] =
    R"(Examples:
  espalier tokenize -m models/en-fr "It rains." "It snows."
  espalier tokenize -m models/en-fr --decode 330 1275 265 262
  espalier tokenize -m models/en-fr < texts.jsonl
  espalier tokenize -m models/en-fr --special --input texts.jsonl
  espalier tokenize -m models/en-fr --decode --input tokens.jsonl
  espalier tokenize -m models/en-fr --pieces < texts.jsonl
  espalier tokenize -m models/chat --chat --rendered < conversations.jsonl
models/chat stands for a model with a chat template; none is embedded.

An argument is a text, and with --decode an id of one list of tokens. Without
arguments, lines are read: a line {"text": "..."} becomes {"tokens": [...]}, and
with --decode the other way round; --pieces adds "pieces", a spelling of each
token. A text is encoded by itself: no BOS, no EOS, no template. Names of
special tokens in it, such as </s>, are text, but with --special they are those
tokens. Marks of prompt templates that a tokenizer.model has as user-defined
symbols, such as <en>, are tokens in any text. --decode shows special tokens by
their names.

With --chat a line is {"messages": [{"role": "user", "content": "..."}, ...]},
or {"text": "..."} for one message of a user, and becomes the tokens of the
prompt that the model's chat template makes of it, as generate --chat and the
messages of a batch do. --rendered adds what the template writes. A prompt ends
where the last message does with "continue_final_message": true in the line, or
"prefix": true in that message of the assistant.

A bad line becomes {"error": "..."}, and is told on stderr; blank lines are
skipped. Exit code: 0 if every line succeeded, 1 if some failed, 2 if none did,
or the model or the input cannot be read, or the output not be written.)";

}  // namespace espalier::cli
