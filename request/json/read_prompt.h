// Parsers of token ids and messages, shared by the lines of a file and the
// bodies of calls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/json_scan.h"

namespace espalier {

// Converts `ids`, which may be empty, to token ids. The request's validation
// checks them against the vocabulary.
// Errors: kInvalidArgument naming the id ("prompt_tokens[3]") and its value.
absl::Status ToTokenIds(std::string_view name, std::span<const int64_t> ids,
                        std::vector<TokenId>* tokens);

// A conversation for a chat template: objects with a "role", at least one. A
// "content" is a string; a list of {"type": "text", "text": T} becomes one, its
// texts joined by line ends. Those of "user", "system" and "developer" must
// have one. The arguments of "tool_calls" that are the text of an object become
// that object. Other members are as they were given.
// Errors: kInvalidArgument naming the member ("messages[0].role") and the
// value.
absl::StatusOr<json::array> ReadMessages(std::string_view name,
                                         const JsonText& json);
// Makes arguments of a call that are the text of an object that object; others
// stay as they are. Errors: kInvalidArgument naming `name`, if they have too
// many values.
absl::Status ReadArguments(const std::string& name, json::value* arguments);
// Joins the texts of a content by line ends. Errors: kInvalidArgument naming
// the part ("output[1].text").
absl::StatusOr<json::string> JoinParts(const std::string& name,
                                       const json::array& parts);
// Checks the messages of a conversation, and joins their parts, as ReadMessages
// does.
absl::Status CheckMessages(std::string_view name, json::array* messages);

}  // namespace espalier
