#include "examples/cli/usage_error.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/spelling.h"
#include "base/status.h"
#include "base/wording.h"
#include "examples/cli/option_hints.h"
#include "examples/cli/options.h"
#include "request/json/other_names.h"
#include "request/json/param_fields.h"

namespace espalier::cli {
namespace {

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Null if there is none of that name.
const CLI::App* FindCommand(const CLI::App& app, std::string_view name) {
  for (const CLI::App* command : Commands(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : Commands(app)) {
    names.push_back(command->get_name());
  }
  return names;
}

// Long and short, with their dashes.
std::vector<std::string> NamesOfOptions(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      names.push_back("-" + name);
    }
  }
  return names;
}

std::string ClosestName(std::string_view word,
                        const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return espalier::ClosestName(word, views);
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether it is an option that takes a value only behind "=".
bool IsFlag(const CLI::App& command, std::string_view arg) {
  if (!arg.starts_with("--")) return false;
  const CLI::Option* const option =
      command.get_option_no_throw(std::string(arg));
  return option != nullptr && option->get_items_expected_max() == 0;
}

// The option that `arg` names, with a value behind it or not; null if none.
const CLI::Option* OptionOf(const CLI::App& command, std::string_view arg) {
  const size_t length = arg.starts_with("--") ? arg.find('=') : 2;
  if (!arg.starts_with('-')) return nullptr;
  return command.get_option_no_throw(std::string(arg.substr(0, length)));
}

// An app without a command, or with something before it.
std::string DescribeApp(const CLI::App& app) {
  const std::vector<std::string> names = CommandNames(app);
  const std::string list = "The commands are " + JoinWithAnd(names) + ".";
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return "a command is needed. " + list;
  const std::string& first = rest.front();
  const bool is_option = first.starts_with('-');
  const std::string nearest =
      ClosestName(first, is_option ? NamesOfOptions(app) : names);
  const std::string question =
      nearest.empty() ? ". " : "; did you mean " + nearest + "? ";
  if (is_option) {
    return Concat("no option ", first, " before the command", question, list);
  }
  return Concat("no command \"", first, "\"", question, list);
}

// The options of other programs that the command has an answer to.
std::vector<OtherOption> AnsweredBy(const CLI::App& command) {
  const std::vector<std::string> names = NamesOfOptions(command);
  std::vector<OtherOption> answered;
  for (const OtherOption& other : OtherOptions()) {
    if (Has(names, std::string(other.option))) answered.push_back(other);
  }
  return answered;
}

std::string HintOf(const OtherOption& other) {
  if (!other.hint.empty()) return std::string(other.hint);
  return Concat("did you mean ", other.option, "?");
}

bool IsOfOtherPrograms(std::string_view option) {
  return std::ranges::find(OtherOptions(), option, &OtherOption::name) !=
         OtherOptions().end();
}

// What was meant by a misspelt option of this or of another program, or "".
std::string NearestHint(const CLI::App& command, const std::string& option) {
  std::vector<std::string> names = NamesOfOptions(command);
  const std::vector<OtherOption> others = AnsweredBy(command);
  // What is an option of another program is no misspelling of one.
  const bool is_misspelt = !IsOfOtherPrograms(option);
  for (const OtherOption& other : others) {
    if (other.name == option) return HintOf(other);
    // Every short option is near every other.
    if (other.name.starts_with("--")) names.push_back(other.name);
  }
  if (!is_misspelt) return "";
  const std::string nearest = ClosestName(option, names);
  for (const OtherOption& other : others) {
    if (other.name == nearest) return HintOf(other);
  }
  return nearest.empty() ? "" : "did you mean " + nearest + "?";
}

// What each request of a batch has for an option that generate has, or another
// program; or "".
std::string HintOfRequests(const std::string& field) {
  const OtherName* const other = FindOtherName(field);
  std::string_view ours = other == nullptr ? field : other->ours;
  // -n4
  const size_t num_letters = field.find_first_of("0123456789");
  if (num_letters == 1 && FindParamField(field) == nullptr) {
    ours = ours.substr(0, num_letters);
  }
  if (other != nullptr && !other->hint.empty()) return std::string(other->hint);
  if (FindParamField(ours) != nullptr) {
    return Concat("each request has its own, \"params\": {\"", ours,
                  "\": ...}");
  }
  if (ours == "prompt" || ours == "prompt_tokens") {
    return Concat("each request has its own, \"", ours, "\": ...");
  }
  return "";
}

// `option`, as it was typed, with two dashes if that is one of any command or
// of another program: --host of -host.
std::string WithTwoDashes(const CLI::App& app, const std::string& option) {
  if (option.size() < 3 || option[0] != '-' || option[1] == '-') return option;
  std::string meant = "-" + option;
  std::ranges::replace(meant, '_', '-');
  const bool is_known =
      IsOfOtherPrograms(meant) ||
      std::ranges::any_of(Commands(app), [&](const CLI::App* command) {
        return Has(NamesOfOptions(*command), meant);
      });
  return is_known ? meant : option;
}

// What to do instead of giving `option` to `command`, or "".
std::string HintFor(const CLI::App& app, const CLI::App& command,
                    const std::string& option) {
  if (command.get_name() == "trace" &&
      Has({"--text", "--svg", "--html", "--dot"}, option)) {
    return "did you mean --to " + option.substr(2) + "?";
  }
  if (const std::string name = ClosestName(option, NamesOfOptions(command));
      NormalizeName(name) == NormalizeName(option) && !name.empty()) {
    return "did you mean " + name + "?";
  }
  std::string field = NormalizeName(option);
  std::replace(field.begin(), field.end(), '-', '_');
  if (command.get_name() == "batch") {
    const std::string of_requests = HintOfRequests(field);
    if (!of_requests.empty()) return of_requests;
  }
  if (command.get_name() == "serve") {
    const std::string_view of_calls = HintOfCalls(option);
    if (!of_calls.empty()) return std::string(of_calls);
  }
  for (const CLI::App* other : Commands(app)) {
    if (other != &command && Has(NamesOfOptions(*other), option)) {
      return "it is an option of " + other->get_name();
    }
  }
  for (const OtherOption& other : AnsweredBy(command)) {
    if (NormalizeName(other.name) == NormalizeName(option)) {
      return HintOf(other);
    }
  }
  const std::string nearest = NearestHint(command, option);
  if (!nearest.empty() || command.get_name() != "batch") return nearest;
  return HintOfRequests(espalier::ClosestName(field, ParamNames()));
}

std::string DescribeOption(const CLI::App& app, const CLI::App& command,
                           const std::string& argument) {
  const std::string option = argument.substr(0, argument.find_first_of("= "));
  const bool is_sentence = argument.find(' ') < argument.find('=');
  if (is_sentence && Has(NamesOfOptions(command), option)) {
    return Concat(command.get_name(), " takes ", option,
                  " and its value as two arguments, got \"", argument, "\"");
  }
  const std::string meant = WithTwoDashes(app, option);
  std::string hint = is_sentence ? "" : HintFor(app, command, meant);
  if (hint.empty() && command.get_name() == "generate" &&
      !IsOfOtherPrograms(meant)) {
    hint = "a text that begins with - goes behind --";
  }
  return Concat(command.get_name(), " has no option ", option,
                hint.empty() ? "" : "; " + hint);
}

bool IsModelDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path + "/config.json", error);
}

std::string DescribeArgument(const CLI::App& command,
                             const std::string& argument) {
  std::string text =
      Concat(command.get_name(), " has no use for \"", argument, "\"");
  if (IsModelDirectory(argument) && Has(NamesOfOptions(command), "-m")) {
    return Concat(text, "; a model is -m ", argument);
  }
  if (command.get_name() == "batch") {
    text += "; a file of requests is --input " + argument;
  }
  if (command.get_name() == "tokenize") {
    text +=
        "; it takes lines as {\"text\": \"It rains.\"} from stdin, or from "
        "--input FILE";
  }
  if (command.get_name() == "trace") {
    text += "; the picture's file is --output " + argument;
  }
  if (command.get_name() == "serve") text += "; a model is --model DIR";
  return text;
}

// The field of the request format that is an option of this name, or null.
const ParamField* FieldOf(std::string_view option) {
  if (!option.starts_with('-')) return nullptr;
  std::string name(option.substr(option.starts_with("--") ? 2 : 1));
  std::replace(name.begin(), name.end(), '-', '_');
  return FindParamField(name);
}

// What the library says, where that is clear enough; it names an option's main
// name, and `names` what was typed.
std::string Described(const CLI::ParseError& error, const OptionNames& names) {
  const std::string said = error.what();
  const std::string main_name = said.substr(0, said.find(':'));
  const ParamField* const field = FieldOf(main_name);
  const std::string option =
      field == nullptr ? main_name : names.Of(field->name);
  const std::string message = option + said.substr(main_name.size());
  if (message.find(" required but received ") != message.npos) {
    return option + " is given more than once";
  }
  if (message.find(" required ") != message.npos &&
      message.ends_with(" missing")) {
    return option + " needs a value";
  }
  // What our own checks say: --trace: must not be empty
  if (message.substr(option.size()).starts_with(": must ")) {
    return option + message.substr(option.size() + 1);
  }
  return message;
}

// What the command cannot do without, if that is what the library misses; or
// "".
std::string_view WhatIsNeeded(const CLI::App& command,
                              const CLI::ParseError& error) {
  constexpr std::string_view kIsRequired = " is required";
  std::string_view missed = error.what();
  if (!missed.ends_with(kIsRequired)) return "";
  missed.remove_suffix(kIsRequired.size());
  return NeededArgument(command.get_name(), missed);
}

// Whether the argument behind `arg` is its value.
bool TakesNext(const CLI::App& command, std::string_view arg) {
  const CLI::Option* const option = OptionOf(command, arg);
  if (option == nullptr || option->get_items_expected_max() == 0) return false;
  return arg.starts_with("--") ? arg.find('=') == arg.npos : arg.size() == 2;
}

// The first of `args` that is a model's directory and no option's value, if
// --model is what the library misses; or "".
std::string ModelAmong(const CLI::App& command, std::span<char* const> args,
                       const CLI::ParseError& error) {
  if (error.what() != std::string_view("--model is required")) return "";
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string arg = args[i];
    if (TakesNext(command, arg)) ++i;
    if (!arg.starts_with('-') && IsModelDirectory(arg)) return arg;
  }
  return "";
}

std::string AppendHint(const CLI::App& command, const std::string& what) {
  return Concat(what, "\nespalier ", command.get_name(), " --help says more.");
}

std::string DescribeCommand(const CLI::App& app, const CLI::App& command,
                            std::span<char* const> args,
                            const CLI::ParseError& error) {
  std::vector<std::string> rest = command.remaining();
  std::erase(rest, "--");
  for (const std::string& argument : rest) {
    if (argument.starts_with('-') && argument.size() > 1) {
      return DescribeOption(app, command, argument);
    }
  }
  if (!rest.empty()) return DescribeArgument(command, rest.front());
  const std::string_view needed = WhatIsNeeded(command, error);
  if (!needed.empty()) return Concat(command.get_name(), ": ", needed);
  const std::string model = ModelAmong(command, args, error);
  return Concat(command.get_name(), ": ",
                Described(error, TypedNames(command, args)),
                model.empty() ? "" : ": give it as -m " + model);
}

// Whether `option`, as it was typed, is a long one with one dash, or another
// program's: -host, which the library takes for -h and more.
bool IsLongWithOneDash(const std::vector<std::string>& options,
                       const std::string& option) {
  if (option.size() < 3 || option[0] != '-' || option[1] == '-') return false;
  std::string meant = "-" + option;
  std::ranges::replace(meant, '_', '-');
  return option.starts_with("-h") || Has(options, meant) ||
         IsOfOtherPrograms(meant) || IsOfOtherPrograms(option);
}

// `option` would swallow `value`, which is an option itself.
std::string OptionAsValue(std::string_view option, std::string_view value) {
  return Concat(option, " needs a value, and ", value,
                " is an option; if it is the value, write ", option,
                option.starts_with("--") ? "=" : "", value);
}

}  // namespace

OptionNames TypedNames(const CLI::App& command, std::span<char* const> args) {
  OptionNames names;
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (arg == "--") break;
    const CLI::Option* const option = OptionOf(command, arg);
    if (option == nullptr) continue;
    const bool is_long = arg.starts_with("--");
    const std::string_view typed =
        arg.substr(0, is_long ? arg.find('=') : size_t{2});
    const ParamField* const field = FieldOf(typed);
    if (field != nullptr) names.SetTyped(field->name, typed);
    if (TakesNext(command, arg)) ++i;
  }
  return names;
}

absl::Status CheckArguments(const CLI::App& app, std::span<char* const> args) {
  const CLI::App* const command =
      args.size() < 2 ? nullptr : FindCommand(app, args[1]);
  if (command == nullptr) return absl::OkStatus();
  const std::vector<std::string> options = NamesOfOptions(*command);
  const bool takes_texts = command->get_name() == "generate";
  std::string_view flag;  // the argument before, if it is one
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (arg == "--") break;
    std::string what;
    const std::string option(arg.substr(0, arg.find('=')));
    if (option + "=" == arg && Has(options, option)) {
      what = option + " must not be empty";
    } else if (IsLongWithOneDash(options, option)) {
      return InvalidArgument(
          AppendHint(*command, DescribeOption(app, *command, option)));
    } else if (takes_texts && !flag.empty() && ReadTrueOrFalse(arg)) {
      what = Concat("write ", flag, "=", NormalizeName(arg),
                    "; a text that is just ", arg, " goes behind --");
    }
    const bool takes_next = TakesNext(*command, arg);
    if (takes_next && i + 1 < args.size()) {
      const std::string_view value = args[i + 1];
      if (Has(options, std::string(value.substr(0, value.find('='))))) {
        what = OptionAsValue(arg, value);
      }
    }
    if (!what.empty()) {
      return InvalidArgument(
          AppendHint(*command, Concat(command->get_name(), ": ", what)));
    }
    flag = IsFlag(*command, arg) ? arg : "";
    if (takes_next) ++i;
  }
  return absl::OkStatus();
}

std::string DescribeUsageError(const CLI::App& app, std::span<char* const> args,
                               const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty() || !app.remaining().empty()) {
    return DescribeApp(app) + "\nespalier --help says more.";
  }
  const CLI::App& command = *chosen.front();
  return AppendHint(command, DescribeCommand(app, command, args, error));
}

}  // namespace espalier::cli
