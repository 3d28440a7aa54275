#include "examples/cli/options/command_options.h"

#include <CLI/App.hpp>
#include <algorithm>

#include "base/spelling.h"

namespace espalier::cli {

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* FindCommand(const CLI::App& app, std::string_view name) {
  for (const CLI::App* command : Commands(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::string CommandName(const CLI::App& command) { return command.get_name(); }

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : Commands(app)) {
    names.push_back(command->get_name());
  }
  return names;
}

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

bool IsFlag(const CLI::App& command, std::string_view arg) {
  if (!arg.starts_with("--")) return false;
  const CLI::Option* const option =
      command.get_option_no_throw(std::string(arg));
  return option != nullptr && option->get_items_expected_max() == 0;
}

const CLI::Option* OptionOf(const CLI::App& command, std::string_view arg) {
  const size_t length = arg.starts_with("--") ? arg.find('=') : 2;
  if (!arg.starts_with('-')) return nullptr;
  return command.get_option_no_throw(std::string(arg.substr(0, length)));
}

bool TakesNext(const CLI::App& command, std::string_view arg) {
  const CLI::Option* const option = OptionOf(command, arg);
  if (option == nullptr || option->get_items_expected_max() == 0) return false;
  return arg.starts_with("--") ? arg.find('=') == arg.npos : arg.size() == 2;
}

}  // namespace espalier::cli
