#include "examples/cli/usage_error.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "base/wording.h"
#include "examples/cli/options.h"
#include "exec_request/param_fields.h"

namespace espalier::cli {
namespace {

// Options of other engines' programs, and what does their work here.
struct Elsewhere {
  std::string_view name;
  std::string_view hint;
};
constexpr Elsewhere kElsewhere[] = {
    {"--prompt", "texts are arguments without an option"},
    {"-p", "texts are arguments without an option"},
    {"--beam-size", "did you mean --num-beams?"},
    {"--n-predict", "did you mean --max-new-tokens?"},
    {"--predict", "did you mean --max-new-tokens?"},
    {"--num-predict", "did you mean --max-new-tokens?"},
    {"--max-length", "did you mean --max-new-tokens?"},
    {"--repeat-penalty", "did you mean --repetition-penalty?"},
    {"--n-best", "did you mean --num-return-sequences?"},
    {"--num-hypotheses", "did you mean --num-return-sequences?"},
    {"--ctx-size", "the context is the model's; --kv-cache-mib is its memory"},
    {"-c", "the context is the model's; --kv-cache-mib is its memory"},
};

// As options are compared: without dashes in front, "-" for "_".
std::string Folded(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string folded(name);
  std::replace(folded.begin(), folded.end(), '_', '-');
  return folded;
}

// Letters to insert, remove or change to make `b` of `a`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

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
std::vector<std::string> OptionNames(const CLI::App& command) {
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

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// An app without a command, or with something before it.
std::string DescribeApp(const CLI::App& app) {
  const std::vector<std::string> names = CommandNames(app);
  const std::string list = "The commands are " + Listed(names) + ".";
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return "a command is needed. " + list;
  const std::string& first = rest.front();
  const bool is_option = first.starts_with('-');
  const std::string nearest =
      Nearest(first, is_option ? OptionNames(app) : names);
  const std::string question =
      nearest.empty() ? ". " : "; did you mean " + nearest + "? ";
  if (is_option) {
    return Concat("no option ", first, " before the command", question, list);
  }
  return Concat("no command \"", first, "\"", question, list);
}

// What to do instead of giving `option` to `command`, or "".
std::string HintFor(const CLI::App& app, const CLI::App& command,
                    const std::string& option) {
  if (const std::string name = Nearest(option, OptionNames(command));
      Folded(name) == Folded(option) && !name.empty()) {
    return "did you mean " + name + "?";
  }
  std::string field = Folded(option);
  std::replace(field.begin(), field.end(), '-', '_');
  if (FindParamField(field) != nullptr && command.get_name() == "batch") {
    return Concat("each request has its own, \"params\": {\"", field,
                  "\": ...}");
  }
  for (const CLI::App* other : Commands(app)) {
    if (other != &command && Has(OptionNames(*other), option)) {
      return "it is an option of " + other->get_name();
    }
  }
  for (const Elsewhere& elsewhere : kElsewhere) {
    if (Folded(elsewhere.name) == Folded(option)) {
      return std::string(elsewhere.hint);
    }
  }
  const std::string nearest = Nearest(option, OptionNames(command));
  return nearest.empty() ? "" : "did you mean " + nearest + "?";
}

std::string DescribeOption(const CLI::App& app, const CLI::App& command,
                           const std::string& argument) {
  const std::string option = argument.substr(0, argument.find_first_of("= "));
  const bool is_sentence = argument.find(' ') < argument.find('=');
  if (is_sentence && Has(OptionNames(command), option)) {
    return Concat(command.get_name(), " takes ", option,
                  " and its value as two arguments, got \"", argument, "\"");
  }
  std::string hint = is_sentence ? "" : HintFor(app, command, option);
  if (hint.empty() && command.get_name() == "generate") {
    hint = "a text that begins with - goes behind --";
  }
  return Concat(command.get_name(), " has no option ", option,
                hint.empty() ? "" : "; " + hint);
}

std::string DescribeArgument(const CLI::App& command,
                             const std::string& argument) {
  std::string text =
      Concat(command.get_name(), " has no use for \"", argument, "\"");
  if (command.get_name() == "batch") {
    text += "; a file of requests is --input " + argument;
  }
  return text;
}

// What the library says, where that is clear enough.
std::string Described(const CLI::ParseError& error) {
  const std::string message = error.what();
  const std::string option = message.substr(0, message.find(':'));
  constexpr std::string_view kNoNumber = "Could not convert: ";
  if (message.starts_with(kNoNumber)) {
    // --request = x
    return "not a number: " + message.substr(kNoNumber.size());
  }
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

std::string WithAdvice(const CLI::App& command, const std::string& what) {
  return Concat(what, "\nespalier ", command.get_name(), " --help says more.");
}

std::string DescribeCommand(const CLI::App& app, const CLI::App& command,
                            const CLI::ParseError& error) {
  std::vector<std::string> rest = command.remaining();
  std::erase(rest, "--");
  for (const std::string& argument : rest) {
    if (argument.starts_with('-') && argument.size() > 1) {
      return DescribeOption(app, command, argument);
    }
  }
  if (!rest.empty()) return DescribeArgument(command, rest.front());
  return Concat(command.get_name(), ": ", Described(error));
}

}  // namespace

std::string Nearest(std::string_view word,
                    const std::vector<std::string>& names) {
  constexpr size_t kShortestPart = 3;  // letters
  const std::string meant = Folded(word);
  std::string nearest;
  size_t fewest = 2 + meant.size() / 4;  // one more than may be wrong
  for (const std::string& name : names) {
    const std::string folded = Folded(name);
    if (folded.size() == 1 && folded != meant) continue;
    const bool is_part = meant.size() >= kShortestPart &&
                         folded.find(meant) != std::string::npos;
    const size_t distance =
        is_part ? std::min<size_t>(1, folded.size() - meant.size())
                : EditDistance(meant, folded);
    if (distance < fewest) {
      fewest = distance;
      nearest = name;
    }
  }
  return nearest;
}

absl::Status CheckValuesAreGiven(const CLI::App& app,
                                 std::span<char* const> args) {
  const CLI::App* const command =
      args.size() < 2 ? nullptr : FindCommand(app, args[1]);
  if (command == nullptr) return absl::OkStatus();
  const std::vector<std::string> options = OptionNames(*command);
  for (const std::string_view arg : args.subspan(2)) {
    if (arg == "--") break;
    const std::string option(arg.substr(0, arg.find('=')));
    if (option + "=" != arg || !Has(options, option)) continue;
    return InvalidArgument(WithAdvice(
        *command,
        Concat(command->get_name(), ": ", option, " must not be empty")));
  }
  return absl::OkStatus();
}

std::string DescribeUsageError(const CLI::App& app,
                               const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty() || !app.remaining().empty()) {
    return DescribeApp(app) + "\nespalier --help says more.";
  }
  const CLI::App& command = *chosen.front();
  return WithAdvice(command, DescribeCommand(app, command, error));
}

}  // namespace espalier::cli
