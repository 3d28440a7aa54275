#include "examples/cli/options/options.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "examples/cli/output/stats_file.h"
#include "request/param_fields.h"
#include "request/read_speculation.h"

namespace espalier::cli {
namespace {

// A text that is longer is not shown whole.
constexpr size_t kMostShownBytes = 60;

// `text` as one argument of a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Reads the texts given for one option.
class ParamReader {
 public:
  // `texts` are not empty.
  ParamReader(const ParamField& field, const OptionNames& names,
              const std::vector<std::string>& texts)
      : field_(field),
        names_(names),
        option_(names.Of(field.name)),
        texts_(texts) {}

  // Errors: kInvalidArgument naming the option and the value.
  absl::Status ReadInto(GenerationParams* params) const {
    return Read(params).status();
  }
  // Reads the value into `params` and returns the JSON that it was read from.
  absl::StatusOr<json::value> Read(GenerationParams* params) const;

 private:
  absl::Status NotJson(const std::string& text,
                       const absl::Status& error) const;
  absl::StatusOr<json::value> ReadOne(const std::string& text) const;
  absl::StatusOr<json::value> JoinTexts() const;
  absl::StatusOr<json::value> ReadAll() const;
  std::optional<json::value> MergeMustContain() const;

  const ParamField& field_;
  const OptionNames& names_;
  const std::string option_;  // the name that was typed
  const std::vector<std::string>& texts_;
};

absl::Status ParamReader::NotJson(const std::string& text,
                                  const absl::Status& error) const {
  std::string message = Concat(option_, " ", Shown(text), ": ", Message(error));
  if (field_.value == "TEXT") {
    // A shortened text is no advice that could be typed.
    const bool is_shown = text.size() <= kMostShownBytes;
    const json::array as_list = {json::value(is_shown ? text : "TEXT")};
    const bool is_stop = field_.name == "stop";
    message +=
        Concat("; to ", is_stop ? "stop at" : "ban", " this very text, give ",
               option_, " ", Quoted(WriteJson(as_list)),
               is_shown ? "" : ", with it as a JSON string");
  } else if (message.ends_with("keys stand in double quotes")) {
    message += ", as in '{\"7\": -2.5}'";
  }
  return InvalidArgument(message);
}

// Reads a value as typed: JSON if it is JSON, otherwise a string. For a text
// field, only JSON strings, lists and objects count as JSON, so that --stop 5
// is the text "5". A value that begins like a list or an object must be one:
// with a missing bracket it would silently become a text.
// REQUIRES: well-formed UTF-8.
absl::StatusOr<json::value> ParamReader::ReadOne(
    const std::string& text) const {
  const bool is_bracketed = text.starts_with('[') || text.starts_with('{');
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok() && is_bracketed) return NotJson(text, value.status());
  const bool is_text = field_.value == "TEXT" && !is_bracketed;
  if (!value.ok() || (is_text && !value->is_string())) return json::value(text);
  return *std::move(value);
}

// The texts of all values together, as one list; a value of another kind is
// handed on, for the field to refuse.
absl::StatusOr<json::value> ParamReader::JoinTexts() const {
  json::array all;
  for (const std::string& text : texts_) {
    ASSIGN_OR_RETURN(json::value value, ReadOne(text));
    if (value.is_object()) return value;
    if (!value.is_array()) value = json::array{std::move(value)};
    for (json::value& item : value.as_array()) all.push_back(std::move(item));
  }
  return json::value(std::move(all));
}

// The constraint of --must-contain and another of the options that are short
// for it, if these are the texts: the two are one constraint.
std::optional<json::value> ParamReader::MergeMustContain() const {
  if (field_.name != "constraint" || texts_.size() != 2) return std::nullopt;
  json::object all;
  bool has_words_alone = false;
  for (const std::string& text : texts_) {
    const absl::StatusOr<json::value> value = ParseJson(text);
    if (!value.ok() || !value->is_object()) return std::nullopt;
    const json::object& part = value->get_object();
    has_words_alone |= part.size() == 1 && part.contains("must_contain");
    for (const auto& member : part) {
      if (!all.insert(member).second) return std::nullopt;
    }
  }
  if (!has_words_alone) return std::nullopt;
  return json::value(std::move(all));
}

absl::StatusOr<json::value> ParamReader::ReadAll() const {
  if (!std::ranges::all_of(texts_, IsUtf8)) {
    return InvalidArgument(option_, " is not UTF-8");
  }
  if (field_.value == "TEXT") return JoinTexts();
  if (texts_.size() == 1) {
    // A salt, a tenant's name, how an output begins or where its constraint
    // does is what was typed, whatever it looks like.
    if (field_.value == "SALT" || field_.value == "NAME" ||
        field_.value == "PREFIX" || field_.value == "MARKER") {
      return json::value(texts_.front());
    }
    return ReadOne(texts_.front());
  }
  if (std::optional<json::value> both = MergeMustContain())
    return *std::move(both);
  return InvalidArgument(names_.Given(field_.name), " ", texts_.size(),
                         " times: ", Shown(texts_[0]), ", ", Shown(texts_[1]));
}

absl::StatusOr<json::value> ParamReader::Read(GenerationParams* params) const {
  ASSIGN_OR_RETURN(const json::value value, ReadAll());
  // An error shows a number as it was typed.
  const JsonText typed = {ToStd(absl::StripAsciiWhitespace(texts_.front()))};
  // Parts of a constraint have options of their own.
  const std::string_view name =
      field_.name == "constraint" ? field_.name : option_;
  const absl::Status status = names_.InOptions(
      value.is_number() ? ReadParam(field_, name, typed, params)
                        : field_.member.Read(name, value, params));
  const std::optional<bool> truth = ReadTrueOrFalse(texts_.front());
  if (!status.ok() && !truth && field_.value == "on|off") {
    return InvalidArgument(option_, " must be on or off, got ",
                           InQuotes(texts_.front()));
  }
  if (status.ok()) return value;
  if (!truth || texts_.size() > 1) return status;
  // Its other spellings are no JSON, or numbers.
  const json::value truth_value(*truth);
  if (field_.member.Read(option_, truth_value, params).ok()) return truth_value;
  return status;
}

}  // namespace

std::optional<bool> ReadTrueOrFalse(std::string_view text) {
  const std::string folded = absl::AsciiStrToLower(ToAbsl(text));
  for (const std::string_view yes : {"true", "yes", "on", "1"}) {
    if (folded == yes) return true;
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (folded == no) return false;
  }
  return std::nullopt;
}

absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts,
                                            const OptionNames& names) {
  GenerationParams params;
  for (const auto& [name, values] : texts) {
    const ParamField& field = *FindParamField(name);  // an option of ours
    const ParamReader reader(field, names, values);
    RETURN_IF_ERROR(reader.ReadInto(&params));
  }
  return params;
}

absl::StatusOr<json::object> ReadParamValues(const ParamTexts& texts,
                                             const OptionNames& names) {
  json::object values;
  for (const auto& [name, given] : texts) {
    const ParamField& field = *FindParamField(name);
    const ParamReader reader(field, names, given);
    GenerationParams read;
    ASSIGN_OR_RETURN(values[std::string(field.name)], reader.Read(&read));
  }
  return values;
}

std::vector<std::string_view> GivenParams(const ParamTexts& texts) {
  std::vector<std::string_view> names;
  for (const auto& [name, values] : texts) {
    names.push_back(FindParamField(name)->name);
  }
  return names;
}

absl::StatusOr<SpeculationParams> ReadSpeculate(const std::string& text) {
  if (!IsUtf8(text)) return InvalidArgument("--speculate is not UTF-8");
  if (ReadTrueOrFalse(text) == false) return SpeculationParams();
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) value = json::value(text);
  const std::string json = WriteJson(*value);
  std::optional<SpeculationParams> speculate;
  RETURN_IF_ERROR(ReadSpeculation("--speculate", JsonText{json}, &speculate));
  return *speculate;
}

absl::Status CheckFiles(const CommonOptions& options, const std::string& option,
                        const std::string& path) {
  const std::string& trace = options.runtime.trace;
  const std::string& stats = options.runtime.stats;
  for (const auto& [name, file] :
       {std::pair("--trace", trace), std::pair("--stats", stats)}) {
    if (file == "-") return InvalidArgument(name, " needs a file, got -");
    if (NamesSameFile(file, path)) {
      return InvalidArgument(name, " and ", option, " are the same file, ",
                             file);
    }
  }
  if (NamesSameFile(trace, stats)) {
    return InvalidArgument("--trace and --stats are the same file, ", trace);
  }
  if (stats.empty()) return absl::OkStatus();
  const std::string temporary = StatsFile::TemporaryOf(stats);
  for (const auto& [name, file] :
       {std::pair(std::string("--trace"), trace), std::pair(option, path)}) {
    if (!NamesSameFile(file, temporary)) continue;
    return InvalidArgument("--stats is first written to ", temporary,
                           ", the file of ", name);
  }
  return absl::OkStatus();
}

int Refuse(const absl::Status& status) {
  PrintToStderr(Concat("espalier: ", Message(status), "\n"));
  return kNothingRan;
}

}  // namespace espalier::cli
