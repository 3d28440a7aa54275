// What other programs call fields of requests: the one list for hints at what
// was meant, in lines of requests, in calls of a server and on the command
// line.
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
  // A field of the request format: what does its work here, or what it could
  // be taken for, "num_beams".
  std::string_view ours;
  // Said instead of "did you mean OURS?"; of fields it names `ours` alone.
  std::string_view hint = "";
};
std::span<const OtherName> OtherNames();

// Null if it is in no other program.
const OtherName* FindOtherName(std::string_view name);

// The fields that one object may have, and those that stand in another.
struct FieldPlaces {
  std::span<const std::string_view> here;
  std::span<const std::string_view> there = {};
  std::string_view where = "";  // where those stand: " in params"
};

// What to do about `name`, a field of another program, where `places` are:
// "; did you mean num_beams?", "; did you mean num_beams in params?", or "" if
// nothing there does its work. Nullopt if it is in no other program.
std::optional<std::string> HintAtOtherName(std::string_view name,
                                           const FieldPlaces& places);

// The same of a name that is a misspelling of one of these, or of one that
// other programs have; "" if it is near none.
std::string HintAtMisspelling(std::string_view name, const FieldPlaces& places);

}  // namespace espalier
