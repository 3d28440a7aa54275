#include "examples/cli/help_formatter.h"

#include <sstream>

namespace espalier::cli {

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
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

}  // namespace espalier::cli
