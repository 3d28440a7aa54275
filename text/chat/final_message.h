// Assistant prefill: a prompt that ends where the content of the last message
// does, so that the model continues that message instead of answering it. The
// rule is that of transformers' continue_final_message: a mark is appended to
// the content, and the rendering is cut where the mark stands. Where the
// template trims the content, white space at its end falls.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/jinja/text.h"

namespace espalier {

struct ChatInputs;  // text/chat/chat_template.h

// Decides if `inputs` continue their last message: if `field`, a request's
// continue_final_message, is set, or if the message is the assistant's and has
// "prefix": true. Then no generation prompt is added; `adds_prompt` is the
// request's own setting for that, or null.
// Errors: kInvalidArgument naming the field: a generation prompt is asked for;
// the last message has no text, or is to be continued and not the assistant's.
absl::Status SettleFinalMessage(bool field, const bool* adds_prompt,
                                ChatInputs* inputs);

// Appends the mark to the content of the last message and returns the content.
// Errors: kInvalidArgument if there is no message, or its content is no string.
absl::StatusOr<std::string> MarkFinalMessage(json::array* messages);

// Returns the text before the mark, which was appended to `content`.
// Errors: kInvalidArgument if the template dropped the mark, or changed the
// content otherwise than at its ends.
absl::StatusOr<jinja::Text> CutAtMark(const jinja::Text& rendered,
                                      std::string_view content);

// The end of a rendering that is `content`, perhaps without the white space at
// its end.
// REQUIRES: `rendered` is of CutAtMark.
std::string FinalContent(const jinja::Text& rendered, std::string_view content);

}  // namespace espalier
