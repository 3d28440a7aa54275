#include "examples/cli/options/usage_error.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/spelling.h"
#include "base/status.h"
#include "base/wording.h"
#include "examples/cli/options/command_options.h"
#include "examples/cli/options/option_hints.h"
#include "examples/cli/options/options.h"
#include "examples/cli/options/unknown_option.h"
#include "examples/cli/output/output.h"

namespace espalier::cli {
namespace {

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
    return Concat("no option ", Shortened(first), " before the command",
                  question, list);
  }
  return Concat("no command \"", Shortened(first), "\"", question, list);
}

bool IsModelDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path + "/config.json", error);
}

std::string DescribeArgument(const CLI::App& command,
                             const std::string& argument) {
  std::error_code error;
  const bool is_path = std::filesystem::exists(argument, error);
  const std::string shown = is_path ? argument : Shortened(argument);
  // A shortened argument is not a file's name.
  const std::string file = shown == argument ? argument : "FILE";
  std::string text =
      Concat(command.get_name(), " has no use for \"", shown, "\"");
  if (IsModelDirectory(argument) && Has(NamesOfOptions(command), "-m")) {
    return Concat(text, "; a model is -m ", argument);
  }
  if (command.get_name() == "batch") {
    text += "; it reads one file of requests";
  }
  if (command.get_name() == "trace") {
    text += "; the picture's file is --output " + file;
  }
  if (command.get_name() == "serve") text += "; a model is --model DIR";
  return text;
}

// The key of an option in OptionNames, by its main name: "num_beams" of
// "--num-beams".
std::string KeyOf(std::string_view main_name) {
  const size_t num_dashes = main_name.find_first_not_of('-');
  std::string key(main_name.substr(std::min(num_dashes, main_name.size())));
  std::ranges::replace(key, '-', '_');
  return key;
}

// Returns the library's message, reworded where it is unclear. The library uses
// an option's main name; `names` has the name that was typed.
std::string Described(const CLI::ParseError& error, const OptionNames& names) {
  const std::string said = error.what();
  const std::string main_name = said.substr(0, said.find(':'));
  const std::string key = KeyOf(main_name);
  const bool is_typed = names.IsTyped(key);
  const std::string option = is_typed ? names.Of(key) : main_name;
  const std::string message = option + said.substr(main_name.size());
  if (message.find(" required but received ") != message.npos) {
    return (is_typed ? names.Given(key) : option + " is given") +
           " more than once";
  }
  if (message.find(" required ") != message.npos &&
      message.ends_with(" missing")) {
    return option + " needs a value";
  }
  // Messages of our own checks: "--trace: must not be empty".
  if (message.substr(option.size()).starts_with(": must ")) {
    return option + message.substr(option.size() + 1);
  }
  return message;
}

// Returns the hint for the required argument that is missing, if that is the
// library's error; or "".
std::string_view WhatIsNeeded(const CLI::App& command,
                              const CLI::ParseError& error) {
  constexpr std::string_view kIsRequired = " is required";
  std::string_view missed = error.what();
  if (!missed.ends_with(kIsRequired)) return "";
  missed.remove_suffix(kIsRequired.size());
  return NeededArgument(command.get_name(), missed);
}

// Returns the first of `args` that is a model's directory and no option's
// value, if the library reports --model as missing; or "".
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

// `option` would swallow `value`, which is an option itself.
std::string OptionAsValue(std::string_view option, std::string_view value) {
  const std::string shown = Shortened(value);
  return Concat(option, " needs a value, and ", shown,
                " is an option; if it is the value, write ", option,
                option.starts_with("--") ? "=" : "",
                shown == value ? shown : "TEXT");
}

}  // namespace

OptionNames TypedNames(const CLI::App& command, std::span<char* const> args) {
  OptionNames names;
  bool is_whole = false;  // a constraint is given as one
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (arg == "--") break;
    const CLI::Option* const option = OptionOf(command, arg);
    if (option == nullptr) continue;
    const bool is_long = arg.starts_with("--");
    const std::string_view typed =
        arg.substr(0, is_long ? arg.find('=') : size_t{2});
    const std::string key = KeyOf(option->get_name());
    names.AddTyped(key, typed);
    is_whole |= key == "constraint";
    // They are short for the option of a field.
    if (key == "regex" || key == "choice" || key == "json_schema" ||
        key == "grammar" || key == "must_contain") {
      names.AddTyped("constraint", typed);
      names.AddTyped("constraint." + key, typed);
    }
    if (TakesNext(command, arg)) ++i;
  }
  // Beside --must-contain, --constraint has the other parts.
  if (is_whole) names.AddTyped("constraint", Flag("constraint"));
  // Without another one a catalogue is the constraint of all texts.
  if (command.get_name() == "generate" && names.IsTyped("items") &&
      !names.IsTyped("constraint")) {
    names.AddTyped("constraint", names.Of("items"));
    names.AddTyped("constraint.items", names.Of("items"));
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
      // The library would take the next argument.
      what = option.ends_with("-punctuations")
                 ? Concat("write ", option, " \"\" for none")
                 : option + " must not be empty";
    } else if (IsLongWithOneDash(options, option)) {
      return InvalidArgument(
          AppendHint(*command, DescribeOption(app, *command, option)));
    } else if (takes_texts && !flag.empty() && ReadTrueOrFalse(arg)) {
      what = Concat("write ", flag, "=", NormalizeName(arg),
                    "; a text that is just ", arg, " goes after --");
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
