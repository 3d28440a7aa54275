// Names that other programs use for fields of requests: one list, used for
// hints in request lines, in calls of a server and on the command line.
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

// A field of another program's requests.
struct OtherName {
  std::string_view theirs;  // "beam_size"
  // The field of the request format with this meaning, or the closest one:
  // "num_beams".
  std::string_view ours;
  // Replaces "did you mean OURS?"; names no field but `ours`, in backquotes.
  std::string_view hint = "";
};
std::span<const OtherName> OtherNames();

// Returns null if no other program has it.
const OtherName* FindOtherName(std::string_view name);

// The fields that one object may have, and those that stand in another.
struct FieldPlaces {
  std::span<const std::string_view> here;
  std::span<const std::string_view> there = {};
  std::string_view where = "";  // where those stand: " in params"
};

// Returns a hint for `name`, a field of another program, given the fields in
// `places`: "; did you mean num_beams?", "; did you mean num_beams in params?",
// or "" if none of them has its meaning. Nullopt if no other program has it.
std::optional<std::string> HintAtOtherName(std::string_view name,
                                           const FieldPlaces& places);

// Returns a hint for a misspelling of a field in `places` or of another
// program's field; "" if nothing is close.
std::string HintAtMisspelling(std::string_view name, const FieldPlaces& places);

}  // namespace espalier
