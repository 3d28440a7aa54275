// OptionNames: the command-line options of the request format's fields, for
// error messages of espalier generate: the engine writes num_beams where the
// user typed --num-beams.
//
//   OptionNames names;
//   names.SetTyped("num_return_sequences", "-n");
//   names.InOptions(InvalidField("`num_return_sequences` must be 1 without "
//                                "`do_sample`"));
//       // -n must be 1 without --do-sample
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/field_error.h"

namespace espalier::cli {

// "num_beams" is --num-beams; a name of one letter is -n.
std::string Flag(std::string_view name);

class OptionNames {
 public:
  // The field was given by this one of its options.
  void SetTyped(std::string_view field, std::string_view option) {
    typed_[std::string(field)] = option;
  }

  // The option as typed, or, if it was not, the field's main one.
  std::string Of(std::string_view field) const;

  // The names that errors have here; they refer to this object.
  FieldWords words() const;
  // Returns `error` with options in place of the fields that it names.
  absl::Status InOptions(const absl::Status& error) const;

 private:
  std::map<std::string, std::string, std::less<>> typed_;  // by field
};

}  // namespace espalier::cli
