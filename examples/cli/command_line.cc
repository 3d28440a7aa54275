#include "examples/cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "examples/cli/commands/batch_command.h"
#include "examples/cli/commands/constrain_command.h"
#include "examples/cli/commands/generate_command.h"
#include "examples/cli/commands/inspect_command.h"
#include "examples/cli/commands/score_command.h"
#include "examples/cli/commands/serve_options.h"
#include "examples/cli/commands/tokenize_command.h"
#include "examples/cli/commands/trace_command.h"
#include "examples/cli/commands/transcribe_options.h"
#include "examples/cli/input/language_text.h"
#include "examples/cli/options/common_options.h"
#include "examples/cli/options/options.h"
#include "examples/cli/options/usage_error.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "request/param_fields.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {
namespace {

// Help texts that fit a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  // Returns an option's description, wrapped to the width of its column.
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr size_t kColumns = 80;
    const size_t width = kColumns - get_column_width();
    std::istringstream words(option->get_description());
    std::string text;
    size_t column = 0;
    for (std::string word; words >> word;) {
      const bool fits = column + 1 + word.size() <= width;
      if (column > 0) text += fits ? ' ' : '\n';
      column = word.size() + (column > 0 && fits ? column + 1 : 0);
      text += word;
    }
    return text;
  }

  // CLI11 prints an option's text after its positional form, too; there the
  // name says it.
  std::string make_option(const CLI::Option* option,
                          bool is_positional) const override {
    if (!is_positional || !option->nonpositional()) {
      return Formatter::make_option(option, is_positional);
    }
    std::stringstream out;
    CLI::detail::format_help(out, make_option_name(option, true),
                             make_option_desc(option), get_column_width());
    return out.str();
  }
};

// A field of the request format as an option.
void AddParamOption(CLI::App* command, const ParamField& field,
                    ParamTexts* texts) {
  const std::string name(field.name);
  const std::string help(field.help);
  std::string flags = Flag(name);
  if (!field.alias.empty()) flags += "," + Flag(field.alias);
  if (field.alias.size() == 1) flags += ",--" + std::string(field.alias);
  CLI::Option* option = nullptr;
  if (field.value.empty()) {
    option =
        AddFlag(command, flags, help, [texts, name](const std::string& text) {
          (*texts)[name].push_back(text);
        });
  } else {
    const auto set = [texts, name](const CLI::results_t& values) {
      std::vector<std::string>& given = (*texts)[name];
      given.insert(given.end(), values.begin(), values.end());
      return true;
    };
    option = command->add_option(flags, set, help)
                 ->type_name(std::string(field.value));
  }
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->group(std::string(field.group));
}

// Returns the constraint of a schema, or of the one in a file, as JSON.
// Throws CLI::ValidationError if it is none.
std::string SchemaConstraint(const std::string& option,
                             const std::string& schema_or_file,
                             const std::string& whitespace) {
  absl::StatusOr<std::string> schema = ReadSchema(schema_or_file);
  absl::Status status = schema.status();
  if (schema.ok() && schema->starts_with("\xEF\xBB\xBF")) {
    schema->erase(0, 3);  // a byte order mark
  }
  if (schema.ok()) {
    const absl::StatusOr<json::value> value = ParseJson(*schema);
    status = value.status();
    if (value.ok() && !value->is_object() && !value->is_bool()) {
      status = InvalidArgument("a schema must be an object or a boolean, got ",
                               Shown(*schema));
    }
  }
  if (!status.ok()) {
    const std::string message = Message(status);
    const bool names_file = schema.ok() && !IsSchemaText(schema_or_file);
    throw CLI::ValidationError(
        option, names_file ? Concat(schema_or_file, ": ", message) : message);
  }
  if (whitespace == "bounded")
    return Concat(R"({"json_schema": )", *schema, "}");
  return Concat(R"({"json_schema": )", *schema, R"(, "whitespace": )",
                WriteJson(json::string(whitespace)), "}");
}

// Returns the constraint of a grammar, or of the one in a file, as JSON.
// Throws CLI::ValidationError if the file cannot be read.
std::string GrammarConstraint(const std::string& option,
                              const std::string& grammar_or_file) {
  absl::StatusOr<std::string> grammar = ReadGrammar(grammar_or_file);
  absl::Status status = grammar.status();
  if (status.ok()) {
    status = CheckUtf8(*grammar);
    if (!status.ok() && !IsGrammarText(grammar_or_file)) {
      status = Annotate(status, grammar_or_file);
    }
  }
  if (!status.ok()) throw CLI::ValidationError(option, Message(status));
  return WriteJson(json::object{{"grammar", *grammar}});
}

// Returns the value of an option that is given once.
// Throws CLI::ArgumentMismatch if it is given more often.
const std::string& OnlyOf(const std::string& option,
                          const CLI::results_t& values) {
  if (values.size() == 1) return values.front();
  throw CLI::ArgumentMismatch::AtMost(option, 1, values.size());
}

// True if a flag is given, but not as false. Its value is checked later.
bool IsSet(const CLI::Option* flag) {
  return flag->count() > 0 &&
         ReadTrueOrFalse(flag->results().front()).value_or(true);
}

// --regex, --choice, --must-contain, --json-schema and --grammar, which are
// short for --constraint.
void AddConstraintOptions(CLI::App* command, const ParamField& field,
                          ParamTexts* texts) {
  const auto add = [&](const std::string& flag, const std::string& value,
                       const std::string& help, auto json_of) {
    const auto set = [texts, name = std::string(field.name),
                      json_of](const CLI::results_t& values) {
      (*texts)[name].push_back(json_of(values));
      return true;
    };
    return command->add_option(flag, set, help)
        ->type_name(value)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(std::string(field.group));
  };
  add("--regex", "PATTERN",
      "the text of the output matches this regular expression, as a whole",
      [](const CLI::results_t& values) {
        return WriteJson(json::object{{"regex", OnlyOf("--regex", values)}});
      });
  add("--choice", "TEXT",
      "the text of the output is this one; several: give it several times",
      [](const CLI::results_t& values) {
        return WriteJson(json::object{
            {"choice", json::array(values.begin(), values.end())}});
      });
  add("--must-contain", "TEXT",
      Concat("the text of the output contains this one; also beside --regex, "
             "--choice, --json-schema or --grammar",
             command->get_name() == "generate" ? ", but not --items" : "",
             "; several: give it several times"),
      [](const CLI::results_t& values) {
        return WriteJson(json::object{
            {"must_contain", json::array(values.begin(), values.end())}});
      });
  const CLI::Option* const schema =
      add("--json-schema", "FILE",
          "the text of the output is JSON of a value that satisfies this "
          "schema, a file or JSON that begins with {",
          [command](const CLI::results_t& values) {
            const CLI::Option* const whitespace =
                command->get_option("--whitespace");
            std::string spaces = "bounded";
            if (whitespace->count() > 0) spaces = whitespace->results().front();
            if (IsSet(command->get_option("--no-spaces"))) spaces = "none";
            return SchemaConstraint("--json-schema",
                                    OnlyOf("--json-schema", values), spaces);
          });
  command
      ->add_option(
          "--whitespace",
          [schema](const CLI::results_t& values) {
            const absl::Status status =
                CheckWhitespaceText(OnlyOf("--whitespace", values));
            if (!status.ok()) {
              throw CLI::ValidationError("--whitespace", Message(status));
            }
            if (schema->count() > 0) return true;
            throw CLI::RequiresError("--whitespace", "--json-schema");
          },
          "with --json-schema: white space between the parts of a text: "
          "bounded, the default, one space after \",\" and \":\"; none; or a "
          "regular expression, such as [ \\n]?")
      ->type_name("PATTERN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(std::string(field.group));
  AddFlag(command, "--no-spaces",
          "with --json-schema: no space after \",\" and \":\", as --whitespace "
          "none",
          [schema, command](const std::string& text) {
            if (!ReadTrueOrFalse(text).value()) return;
            if (schema->count() == 0) {
              throw CLI::RequiresError("--no-spaces", "--json-schema");
            }
            if (command->count("--whitespace") == 0) return;
            throw CLI::ExcludesError("--no-spaces", "--whitespace");
          })
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->group(std::string(field.group));
  add("--grammar", "FILE",
      "the text of the output is one of this grammar, in GBNF as of llama.cpp: "
      "a file, or a text with ::=",
      [](const CLI::results_t& values) {
        return GrammarConstraint("--grammar", OnlyOf("--grammar", values));
      });
}

// Options --num-beams and so on, one for each field of the request format.
void AddParamOptions(CLI::App* command, ParamTexts* texts) {
  for (const ParamField& field : ParamFields()) {
    AddParamOption(command, field, texts);
    if (field.name == "constraint") AddConstraintOptions(command, field, texts);
  }
}

// Any number of arguments.
void AddTexts(CLI::App* command, const std::string& help,
              std::vector<std::string>* texts) {
  // Each is taken as it is: an option that takes "extra" arguments would part
  // "[a, b]" into two. One that waits for more arguments than there can be
  // takes all, those after "--" included.
  constexpr int kNeverEnough = CLI::detail::expected_max_vector_size;
  command->add_option("text", *texts, help)
      ->expected(kNeverEnough, kNeverEnough)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->option_text("...");
}

// Lets no option of `command` have an empty value, as `--trace "$FILE"` gives
// it where FILE is not set: it would pass for an option that was left out. Only
// marks of punctuation may be none.
// Several values at once, the texts to run, are left alone: each gets its own
// answer.
void RefuseEmptyValues(CLI::App* command) {
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "must not be empty" : "";
  };
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() != 1) continue;
    if (option->get_name().ends_with("-punctuations")) continue;
    // Unlike check() this comes before the checks that are there already.
    option->transform(CLI::Validator(check, ""));
  }
}

// Makes `run` what `command` does. `names` are a member of the options, for the
// names that `args` have for them.
template <typename Options>
void SetCallback(CLI::App* command, std::span<char* const> args,
                 const std::shared_ptr<Options>& options, OptionNames* names,
                 absl::StatusOr<int> (*run)(const Options&), int* exit_code) {
  command->callback([command, args, options, names, run, exit_code] {
    *names = TypedNames(*command, args);
    const absl::StatusOr<int> code = run(*options);
    *exit_code = code.ok() ? *code : Refuse(code.status());
  });
}

// Each adds a subcommand, which sets `*exit_code` when it runs.
void AddGenerateCommand(CLI::App* app, std::span<char* const> args,
                        int* exit_code) {
  CLI::App* command = app->add_subcommand("generate", "n-best lists for texts");
  const auto options = std::make_shared<GenerateOptions>();
  AddTexts(command,
           "texts, after -- if one begins with -; none, or -, is the lines of "
           "stdin",
           &options->texts);
  command
      ->add_option("-f,--file,-i,--input", options->file,
                   "one text a line; - is stdin")
      ->option_text("FILE");
  AddFlag(command, "--chat",
          "texts are what a user says, which the model's chat template makes "
          "prompts of",
          &options->common.runtime.chat)
      ->group("Model");
  command
      ->add_option("--system", options->common.runtime.system,
                   "what stands before the user's text in a chat; needs --chat")
      ->option_text("TEXT")
      ->group("Model");
  AddFlag(command, "--stream",
          "print text while it is generated; of beams, what all of them agree "
          "on so far",
          &options->stream)
      ->group("Output");
  AddParamOptions(command, &options->params);
  AddCommonOptions(command, &options->common);
  AddSplitOption(command, &options->common.runtime);
  command->footer([options] {
    return kGenerateExamples + HelpOnDefaults(options->common.runtime);
  });
  SetCallback(command, args, options, &options->common.runtime.names, Generate,
              exit_code);
}

void AddBatchCommand(CLI::App* app, std::span<char* const> args,
                     int* exit_code) {
  CLI::App* command =
      app->add_subcommand("batch", "JSON lines in, JSON lines out");
  const auto options = std::make_shared<BatchOptions>();
  command
      ->add_option("-i,--input,-f,--file,file", options->input,
                   "a file of requests, with or without the option's name; "
                   "-, the default, is stdin")
      ->option_text("FILE");
  command
      ->add_option("-o,--output", options->output,
                   "a file; -, the default, is stdout")
      ->option_text("FILE");
  command
      ->add_option("--max-line-bytes", options->max_line_bytes,
                   Concat("bytes of a line at most; default ", kMaxLineBytes))
      ->transform(InRange(1, 1 << 30))
      ->option_text("N")
      ->group("Limits");
  command
      ->add_option("--max-list-elements", options->limits.max_list_elements,
                   Concat("elements of a field at most, those of lists in it "
                          "included; default ",
                          RequestLineLimits().max_list_elements))
      ->transform(InRange(1, 1 << 30))
      ->option_text("N")
      ->group("Limits");
  AddCommonOptions(command, &options->common);
  AddDefaultsOfRequests(command, &options->common);
  AddSplitOption(command, &options->common.runtime);
  command->footer([options] {
    return kBatchExamples + HelpOnDefaults(options->common.runtime);
  });
  SetCallback(command, args, options, &options->common.runtime.names, RunBatch,
              exit_code);
}

void AddScoreCommand(CLI::App* app, std::span<char* const> args,
                     int* exit_code) {
  CLI::App* command = app->add_subcommand(
      "score", "how likely given continuations of a prompt are");
  const auto options = std::make_shared<ScoreOptions>();
  AddTexts(command,
           "a prompt and its continuations, after -- if one begins with -; "
           "none is JSON lines of --input",
           &options->texts);
  command
      ->add_option("-i,--input,-f,--file", options->input,
                   "JSON lines; -, the default without texts, is stdin")
      ->option_text("FILE");
  AddFlag(command, "--json", "JSON lines out, with every token's figures",
          &options->json);
  AddFlag(command, "--append-eos",
          "continuations end there: the model's EOS is scored after each",
          &options->append_eos);
  AddFlag(command, "--raw", "prompts as they are: no template and no BOS",
          &options->raw);
  command
      ->add_option("--decoder-prompt", options->decoder_prompt,
                   "what the output begins with: between the prompt and the "
                   "continuations")
      ->option_text("TEXT");
  command
      ->add_option("--template", options->runtime.template_name,
                   "the prompt template of prompts; default the model's own")
      ->option_text("NAME")
      ->group("Model");
  AddGeneratorOptions(command, &options->runtime);
  command->footer(kScoreExamples);
  SetCallback(command, args, options, &options->runtime.names, Score,
              exit_code);
}

void AddTokenizeCommand(CLI::App* app, std::span<char* const> args,
                        int* exit_code) {
  CLI::App* command =
      app->add_subcommand("tokenize", "texts as tokens of a model, and back");
  const auto options = std::make_shared<TokenizeOptions>();
  command
      ->add_option("-m,--model", options->model,
                   "required: a directory with " + Tokenizer::FileNames())
      ->required()
      ->option_text("DIR");
  AddTexts(command,
           "texts, after -- if one begins with -; with --decode the ids of one "
           "list of tokens; none: JSON lines of stdin",
           &options->texts);
  command
      ->add_option("-i,--input,-f,--file", options->input,
                   "JSON lines; - is stdin")
      ->option_text("FILE");
  AddFlag(command, "--special,--parse-special",
          "names of special tokens in a text are those tokens",
          &options->special);
  AddFlag(command, "--decode", "tokens to texts, special tokens shown",
          &options->decode);
  AddFlag(command, "--pieces", "beside the tokens a spelling of each",
          &options->pieces);
  AddFlag(command, "--chat",
          "conversations as prompts, by the model's chat template",
          &options->chat);
  AddFlag(command, "--rendered", "with --chat: what the template writes, too",
          &options->rendered);
  command->footer(kTokenizeExamples);
  SetCallback(command, args, options, &options->names, Tokenize, exit_code);
}

void AddConstrainCommand(CLI::App* app, std::span<char* const> args,
                         int* exit_code) {
  CLI::App* command = app->add_subcommand(
      "constrain", "a language of texts, and which texts are in it");
  const auto options = std::make_shared<ConstrainOptions>();
  command
      ->add_option("--regex", options->regex,
                   "the texts that match a regular expression as a whole")
      ->option_text("PATTERN")
      ->group("Language");
  const auto add_texts = [command](const std::string& flag,
                                   std::vector<std::string>* texts,
                                   const std::string& help) {
    command->add_option(flag, *texts, help)
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->option_text("TEXT")
        ->group("Language");
  };
  add_texts("--choice", &options->choices,
            "this text; give it once for each text");
  command
      ->add_option("--json-schema", options->json_schema,
                   "the JSON texts of the values that satisfy a JSON Schema, a "
                   "file or JSON that begins with {")
      ->option_text("FILE")
      ->group("Language");
  command
      ->add_option(
          "--grammar", options->grammar,
          "the texts of a grammar in GBNF, as of llama.cpp: a file, or "
          "a text with ::=")
      ->option_text("FILE")
      ->group("Language");
  add_texts("--must-contain", &options->must_contain,
            "texts that contain this one; give it once for each");
  command
      ->add_option("--items", options->items,
                   "the items of a catalogue: JSON lines, each a list of token "
                   "ids or a text; or an array of ids by numpy.save")
      ->option_text("FILE")
      ->group("Language");
  command
      ->add_flag("--no-spaces", options->no_spaces,
                 "with --json-schema: no space after \",\" and \":\", as "
                 "--whitespace none")
      ->group("Language");
  command
      ->add_option("--whitespace", options->whitespace,
                   "with --json-schema: white space between the parts of a "
                   "text: bounded, the default, one space after \",\" and "
                   "\":\"; none; or a regular expression, such as [ \\n]?")
      ->option_text("PATTERN")
      ->group("Language");
  command
      ->add_option("--start-after", options->start_after,
                   "text that the language begins after, such as </think>; any "
                   "text may come before it")
      ->option_text("MARKER")
      ->group("Language");
  AddTexts(
      command,
      "texts to check, after -- if one begins with -; - alone is JSON lines "
      "of stdin",
      &options->texts);
  command
      ->add_option("-i,--input,-f,--file", options->input,
                   "JSON lines with texts to check; - is stdin")
      ->option_text("FILE");
  command
      ->add_option("-m,--model", options->model,
                   "a directory with " + Tokenizer::FileNames() +
                       ", whose tokens spell the texts")
      ->option_text("DIR");
  command
      ->add_option("--samples", options->num_samples,
                   Concat("random texts of the language to print; default ",
                          options->num_samples))
      ->transform(InRange(0, 1000))
      ->option_text("N");
  command->add_option("--seed", options->seed, "of the random texts; default 0")
      ->transform(InRange(0, std::numeric_limits<int64_t>::max()))
      ->option_text("N");
  AddFlag(command, "--json", "JSON lines out", &options->json);
  command->footer(kConstrainExamples);
  SetCallback(command, args, options, &options->names, Constrain, exit_code);
}

void AddInspectCommand(CLI::App* app, int* exit_code) {
  CLI::App* command = app->add_subcommand(
      "inspect", "what a model directory is, and what it needs");
  const auto options = std::make_shared<InspectOptions>();
  // Several values at once are not checked by RefuseEmptyValues.
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "must not be empty" : "";
  };
  command
      ->add_option("-m,--model,model", options->models,
                   "a directory with config.json, or several")
      ->required()
      ->check(CLI::Validator(check, ""))
      ->option_text("DIR");
  command
      ->add_option("--num-beams", options->num_beams,
                   Concat("of the widest search in the table; default ",
                          options->num_beams))
      ->transform(InRange(1, 100000))
      ->option_text("N");
  AddFlag(command, "--json", "one JSON object a directory and line",
          &options->json);
  command->footer(kInspectExamples);
  command->callback([options, exit_code] {
    const absl::StatusOr<int> code = Inspect(*options);
    *exit_code = code.ok() ? *code : Refuse(code.status());
  });
}

void AddTraceCommand(CLI::App* app, std::span<char* const> args,
                     int* exit_code) {
  CLI::App* command =
      app->add_subcommand("trace", "the tree of a search as a picture");
  const auto options = std::make_shared<TraceOptions>();
  command
      ->add_option("file", options->file,
                   "what --trace has written; - is stdin")
      ->required()
      ->option_text(" ");
  command
      ->add_option("--to", options->format,
                   "text, svg, html or dot; default what FILE ends in, or "
                   "text")
      ->option_text("FORMAT");
  command
      ->add_option("-o,--output", options->output,
                   "a file; -, the default, is stdout")
      ->option_text("FILE");
  command
      ->add_option("--request", options->request,
                   "the one request to draw: its id, or its number if no id "
                   "is this")
      ->option_text("ID");
  command->footer(kTraceExamples);
  SetCallback(command, args, options, &options->names, DrawTrace, exit_code);
}

void AddTranscribeCommand(CLI::App* app, std::span<char* const> args,
                          int* exit_code) {
  CLI::App* command = app->add_subcommand(
      "transcribe", "audio as text with times, by a Whisper model");
  const auto options = std::make_shared<TranscribeCommandOptions>();
  command->add_option("file", options->files, "audio; - is stdin")
      ->required()
      ->option_text("...");
  AddTranscribeOptions(command, options.get());
  AddGeneratorOptions(command, &options->runtime);
  // Defaults of requests, of which transcriptions have none.
  command->remove_option(command->get_option("--generation-config"));
  command->get_option("--kv-cache-mib")
      ->description(
          "key/value memory in MiB; default that of two windows, or of one "
          "more than --batch-size");
  command->footer(kTranscribeExamples);
  SetCallback(command, args, options, &options->runtime.names, RunTranscribe,
              exit_code);
}

void AddServeCommand(CLI::App* app, std::span<char* const> args,
                     int* exit_code) {
  CLI::App* command =
      app->add_subcommand("serve", "a server of OpenAI's API, over HTTP");
  const auto options = std::make_shared<ServeOptions>();
  AddServeOptions(command, options.get());
  AddGeneratorOptions(command, &options->runtime);
  AddDraftModelOption(command, &options->runtime);
  AddItemsOption(command, &options->runtime);
  AddSplitOption(command, &options->runtime);
  AddParamOptions(command, &options->params);
  // It has no default, and is refused as one; help does not offer it.
  command->get_option("--decoder-prompt")->group("");
  command->footer(
      [options] { return kServeExamples + HelpOnDefaults(options->runtime); });
  SetCallback(command, args, options, &options->runtime.names, RunServe,
              exit_code);
}

// Prints the help or version that was requested, and returns the exit code.
int PrintHelp(const CLI::App& app, const CLI::Success& asked_for) {
  std::ostringstream text;
  const int exit_code = app.exit(asked_for, text, text);
  absl::StatusOr<std::unique_ptr<Output>> output = Output::Open("-");
  if (!output.ok()) return Refuse(output.status());
  (*output)->Write(text.str());
  const absl::Status written = (*output)->Close();
  return written.ok() ? exit_code : Refuse(written);
}

// Writes - for _ in the names of options, where transcribe has both.
void SpellWithDashes(std::span<char* const> args) {
  if (args.size() < 2 || args[1] != std::string_view("transcribe")) return;
  for (char* const arg : args.subspan(2)) {
    const std::string_view text = arg;
    if (text == "--") return;
    if (!text.starts_with("--")) continue;
    std::replace(arg, arg + std::min(text.find('='), text.size()), '_', '-');
  }
}

// Accepts other programs' spellings: "help" is --help, "help generate" is
// generate --help, and "version" is --version.
std::vector<char*> Translate(std::span<char* const> args) {
  static char help[] = "--help";
  static char version[] = "--version";
  const std::string_view first = args.size() > 1 ? args[1] : "";
  if (first == "help" && args.size() == 2) return {args[0], help};
  if (first == "help" && args.size() == 3) return {args[0], args[2], help};
  if (first == "version" && args.size() == 2) return {args[0], version};
  return {args.begin(), args.end()};
}

bool IsCommand(const CLI::App& app, std::string_view word) {
  const auto has_name = [&](const CLI::App* command) {
    return command->get_name() == word;
  };
  return !app.get_subcommands(has_name).empty();
}

int ParseAndRun(std::span<char* const> args) {
  CLI::App app("espalier: beam search over shared, paged memory", "espalier");
  app.formatter(std::make_shared<HelpFormatter>());  // commands inherit it
  app.require_subcommand(1);
  app.set_version_flag("--version", "espalier " ESPALIER_VERSION);
  int exit_code = kAllSucceeded;
  AddGenerateCommand(&app, args, &exit_code);
  AddBatchCommand(&app, args, &exit_code);
  AddScoreCommand(&app, args, &exit_code);
  AddServeCommand(&app, args, &exit_code);
  AddTokenizeCommand(&app, args, &exit_code);
  AddConstrainCommand(&app, args, &exit_code);
  AddInspectCommand(&app, &exit_code);
  AddTraceCommand(&app, args, &exit_code);
  AddTranscribeCommand(&app, args, &exit_code);
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    RefuseEmptyValues(command);
  }
  const std::string_view first = args.size() > 1 ? args[1] : "";
  if (args.size() > 2 && !first.starts_with('-') && !IsCommand(app, first)) {
    args = args.first(2);  // it is wrong, whatever stands after it
  }
  std::vector<char*> of_program(args.begin(), args.end());
  if (args.size() == 3 && IsCommand(app, first) &&
      args[2] == std::string_view("--version")) {
    of_program.erase(of_program.begin() + 1);
    args = of_program;
  }
  app.footer("espalier COMMAND --help explains a command, with examples.");
  const absl::Status arguments = CheckArguments(app, args);
  if (!arguments.ok()) return Refuse(arguments);
  try {
    app.parse(static_cast<int>(args.size()), args.data());
  } catch (const CLI::Success& asked_for) {
    return PrintHelp(app, asked_for);
  } catch (const CLI::ParseError& error) {
    return Refuse(InvalidArgument(DescribeUsageError(app, args, error)));
  }
  return exit_code;
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  try {
    SpellWithDashes({argv, argv + argc});
    return ParseAndRun(Translate({argv, argv + argc}));
  } catch (const std::exception& error) {  // no memory, no threads
    return Refuse(ResourceExhausted("cannot go on: ", error.what()));
  }
}

}  // namespace espalier::cli
