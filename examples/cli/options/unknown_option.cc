#include "examples/cli/options/unknown_option.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/spelling.h"
#include "base/status.h"
#include "examples/cli/options/command_options.h"
#include "examples/cli/options/option_hints.h"
#include "examples/cli/output/output.h"
#include "request/other_names.h"
#include "request/param_fields.h"

namespace espalier::cli {
namespace {

// The options of other programs that the command has an answer to.
std::vector<OtherOption> AnsweredBy(const CLI::App& command) {
  const std::vector<std::string> names = NamesOfOptions(command);
  std::vector<OtherOption> answered;
  for (const OtherOption& other : OtherOptions()) {
    // --regex is an option of its own here, and a field elsewhere.
    const bool is_own = Has(names, std::string(other.name));
    if (Has(names, std::string(other.option)) && !is_own) {
      answered.push_back(other);
    }
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

// Suggests an option of this or of another program for a misspelt one, or "".
std::string NearestHint(const CLI::App& command, const std::string& option) {
  std::vector<std::string> names = NamesOfOptions(command);
  const std::vector<OtherOption> others = AnsweredBy(command);
  // An option of another program is not a misspelling.
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

// Suggests the request field that replaces an option of generate or of another
// program, in a batch; or "".
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

// Suggests what to give `command` instead of `option`, or "".
std::string HintFor(const CLI::App& app, const CLI::App& command,
                    const std::string& option) {
  if (CommandName(command) == "trace" &&
      Has({"--text", "--svg", "--html", "--dot"}, option)) {
    return "did you mean --to " + option.substr(2) + "?";
  }
  if (const std::string name = ClosestName(option, NamesOfOptions(command));
      NormalizeName(name) == NormalizeName(option) && !name.empty()) {
    return "did you mean " + name + "?";
  }
  std::string field = NormalizeName(option);
  std::replace(field.begin(), field.end(), '-', '_');
  if (CommandName(command) == "batch") {
    const std::string of_requests = HintOfRequests(field);
    if (!of_requests.empty()) return of_requests;
  }
  if (CommandName(command) == "serve") {
    const std::string_view of_calls = HintOfCalls(option);
    if (!of_calls.empty()) return std::string(of_calls);
  }
  for (const OtherOption& other : AnsweredBy(command)) {
    if (NormalizeName(other.name) == NormalizeName(option)) {
      return HintOf(other);
    }
  }
  for (const CLI::App* other : Commands(app)) {
    if (other != &command && Has(NamesOfOptions(*other), option)) {
      return "it is an option of " + CommandName(*other);
    }
  }
  const std::string nearest = NearestHint(command, option);
  if (!nearest.empty() || CommandName(command) != "batch") return nearest;
  return HintOfRequests(espalier::ClosestName(field, ParamNames()));
}

}  // namespace

std::string DescribeOption(const CLI::App& app, const CLI::App& command,
                           const std::string& argument) {
  const std::string option = argument.substr(0, argument.find_first_of("= "));
  const bool is_sentence = argument.find(' ') < argument.find('=');
  if (is_sentence && Has(NamesOfOptions(command), option)) {
    return Concat(CommandName(command), " takes ", option,
                  " and its value as two arguments, got \"",
                  Shortened(argument), "\"");
  }
  const std::string meant = WithTwoDashes(app, option);
  std::string hint = is_sentence ? "" : HintFor(app, command, meant);
  if (hint.empty() && CommandName(command) == "generate" &&
      !IsOfOtherPrograms(meant)) {
    hint = "a text that begins with - goes after --";
  }
  return Concat(CommandName(command), " has no option ", Shortened(option),
                hint.empty() ? "" : "; " + hint);
}

bool IsLongWithOneDash(const std::vector<std::string>& options,
                       const std::string& option) {
  if (option.size() < 3 || option[0] != '-' || option[1] == '-') return false;
  std::string meant = "-" + option;
  std::ranges::replace(meant, '_', '-');
  return option.starts_with("-h") || Has(options, meant) ||
         IsOfOtherPrograms(meant) || IsOfOtherPrograms(option);
}

}  // namespace espalier::cli
