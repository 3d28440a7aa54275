// The commands of an app of CLI11 and their options, by the names that people
// type.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace espalier::cli {

std::vector<const CLI::App*> Commands(const CLI::App& app);
std::string CommandName(const CLI::App& command);
std::vector<std::string> CommandNames(const CLI::App& app);
// Returns the command of this name, or null.
const CLI::App* FindCommand(const CLI::App& app, std::string_view name);

// Long and short, with their dashes.
std::vector<std::string> NamesOfOptions(const CLI::App& command);

bool Has(const std::vector<std::string>& names, const std::string& name);
// As espalier::ClosestName.
std::string ClosestName(std::string_view word,
                        const std::vector<std::string>& names);

// True if `arg` is an option that takes a value only after "=".
bool IsFlag(const CLI::App& command, std::string_view arg);

// The option that `arg` names, with a value after it or not; null if none.
const CLI::Option* OptionOf(const CLI::App& command, std::string_view arg);

// True if the argument after `arg` is its value.
bool TakesNext(const CLI::App& command, std::string_view arg);

}  // namespace espalier::cli
