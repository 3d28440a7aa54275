#include "openai/abort.h"

#include <utility>

#include "base/byte_order_mark.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/error.h"
#include "request/read_json_text.h"

namespace espalier::openai {

absl::StatusOr<std::vector<std::string>> ReadAbortCall(std::string_view body,
                                                       const Limits& limits) {
  constexpr std::string_view kIds = "request_ids";
  JsonText given = {"null"};
  bool has_unknown = false;
  std::string unknown;  // may be empty, as a name may
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    std::string name = Unquoted(key);
    if (name == kIds) {
      given = value;
    } else {
      unknown = std::move(name);
      has_unknown = true;
    }
  };
  ASSIGN_OR_RETURN(const JsonText json,
                   ScanJson(WithoutByteOrderMark(body), 1, take));
  if (!json.is_object())
    return WrongType("the body", "a JSON object", json.text);
  if (has_unknown) {
    return RefuseField(Shown(unknown),
                       Concat("unknown field ", ShownInQuotes(unknown), "; ",
                              kIds, " is the only one"));
  }
  if (given.is_null()) {
    return RefuseField(kIds, Concat(kIds, " must be there, got nothing"));
  }
  std::vector<std::string> ids;
  absl::Status read = CheckElements(kIds, given, limits);
  if (read.ok()) read = ReadTexts(kIds, given, &ids);
  if (!read.ok()) return RefuseField(kIds, Message(read));
  return ids;
}

}  // namespace espalier::openai
