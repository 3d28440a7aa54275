// ToolCallParser: the calls of tools in the text of an answer, while it grows.
//
//   ToolCallParser parser(ToolCallFormat::kHermes);
//   ToolCallText found;
//   parser.Feed("Let me look.\n<tool_call>{\"name\": \"f\", \"argu", &found);
//   parser.Feed("ments\": {\"x\": 1}}</tool_call>", &found);
//   parser.Finish(&found);
//   // found.content "Let me look.", one call of f with {"x": 1}
//
// A call is emitted once its name and the "{" of its arguments are read. From
// then on its arguments are passed on as the model writes them: up to the
// closing "}", or to the end of the text or the first character that is not
// JSON. If the arguments precede the name, or are a string that holds JSON, the
// call is emitted when it ends. Everything else is content: a mark without a
// call, JSON that is no call. White space next to a call is dropped.
//
// Invariant: the content and the calls do not depend on how the text is divided
// into pieces.
//
// Costs some nanoseconds a byte; what may still become a call is kept.
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/tool_call_format.h"

namespace espalier {

// A call, or a part of one.
struct ToolCallPart {
  size_t call_idx = 0;         // calls of a text are counted from 0
  std::string name = {};       // in the first part of a call, else empty
  std::string arguments = {};  // JSON, as the model wrote it
};

struct ToolCallText {
  std::string content = {};
  std::vector<ToolCallPart> calls = {};  // ascending by call_idx, one for each
};

class ToolCallParser {
 public:
  // Without a mark, which Llama 3 may leave out, JSON is a call only if it
  // names one of `tool_names`.
  explicit ToolCallParser(ToolCallFormat format,
                          std::vector<std::string> tool_names = {});

  // Adds to `*out` what `text` makes certain.
  void Feed(std::string_view text, ToolCallText* out);
  // Adds the rest, as no text follows.
  void Finish(ToolCallText* out);

 private:
  enum class State {
    kText,       // content, up to a mark
    kOpening,    // after a mark: what begins a call
    kName,       // Mistral: a name in front of its arguments
    kObject,     // within JSON
    kSeparator,  // after a call: what ends it, or another one
  };

  // Takes a character; false if it is to be read again, in another state.
  bool Step(char c, ToolCallText* out);
  bool StepText(char c, ToolCallText* out);
  bool StepOpening(char c, ToolCallText* out);
  bool StepName(char c, ToolCallText* out);
  bool StepObject(char c, ToolCallText* out);
  bool StepSeparator(char c, ToolCallText* out);

  // Makes the pending text content.
  bool Reject(ToolCallText* out);
  void OpenObject(size_t depth_of_arguments);
  // Begins a call if the pending JSON is one up to the "{" of its arguments.
  void TryBegin(ToolCallText* out);
  void BeginCall(std::string name, std::string arguments, ToolCallText* out);
  void AddToArguments(char c, ToolCallText* out);
  void EndObject(ToolCallText* out);
  bool MayCall(std::string_view name) const;

  const ToolCallFormat format_;
  const std::vector<std::string> tool_names_;
  std::string_view mark_;  // looked for in content; empty: none any more
  State state_ = State::kText;
  // Read, and neither content nor a call yet.
  std::string pending_;
  size_t num_matched_ = 0;  // characters of the mark or of a call's end
  bool follows_call_ = false;
  bool has_mark_ = false;
  bool is_in_list_ = false;  // Mistral: [{...}, {...}]

  // Within an object:
  size_t object_begin_ = 0;  // in pending_
  size_t depth_ = 0;
  size_t depth_of_arguments_ = 2;
  bool is_in_string_ = false;
  bool is_escaped_ = false;
  bool has_tried_ = false;  // to begin a call
  bool has_begun_ = false;
  bool has_ended_ = false;  // its arguments
  size_t num_calls_ = 0;
};

// The content and the calls of a whole text.
ToolCallText ParseToolCalls(std::string_view text, ToolCallFormat format,
                            const std::vector<std::string>& tool_names = {});

}  // namespace espalier
