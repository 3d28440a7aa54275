// HelpFormatter: help texts that fit a terminal of 80 columns.
#pragma once

#include <CLI/Formatter.hpp>
#include <string>

namespace espalier::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  // What an option is for, in lines as wide as its column leaves.
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace espalier::cli
