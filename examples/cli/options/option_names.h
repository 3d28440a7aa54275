// OptionNames: the options of a command by the names that were typed, for error
// messages: the engine writes num_beams where the user typed --num-beams, and
// an option with several names is called by that of the user.
//
//   OptionNames names;
//   names.AddTyped("num_return_sequences", "-n");
//   names.InOptions(InvalidField("`num_return_sequences` must be 1 without "
//                                "`do_sample`"));
//       // -n must be 1 without --do-sample
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/field_error.h"

namespace espalier::cli {

// "num_beams" is --num-beams; a name of one letter is -n.
std::string Flag(std::string_view name);

// Options have keys: their main name without dashes and with _ for -, which is
// the field of the request format that they set.
class OptionNames {
 public:
  // The option was given by this one of its names.
  void AddTyped(std::string_view key, std::string_view option);
  bool IsTyped(std::string_view key) const { return typed_.contains(key); }

  // The option as it was typed last, or, if it was not, its main name.
  std::string Of(std::string_view key) const;
  // "-n is given", or "-n and --num-return-sequences, one option, are given".
  // REQUIRES: IsTyped(key).
  std::string Given(std::string_view key) const;

  // The names that errors have here; they refer to this object.
  FieldWords words() const;
  // Returns `error` with options in place of the fields that it names.
  absl::Status InOptions(const absl::Status& error) const;

 private:
  // By key; each name once, in the order of their last use.
  std::map<std::string, std::vector<std::string>, std::less<>> typed_;
};

}  // namespace espalier::cli
