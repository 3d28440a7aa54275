#include "examples/cli/commands/batch_line.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "request/generation_defaults.h"
#include "request/idle_fields.h"
#include "request/json/request_json.h"
#include "request/json/result_json.h"
#include "request/param_fields.h"

namespace espalier::cli {
namespace {

// Fields that the request itself gives, kept while its body runs.
struct OwnWords {
  explicit OwnWords(const RequestBody& body)
      : given(body.given), aliases(body.aliases) {
    for (const ParamField& field : ParamFields()) {
      if (field.Is(kLarge) || field.name == "decoder_prompt") continue;
      field.member.copy(body.params, &params);
    }
  }

  std::string_view NameOf(std::string_view param) const {
    const auto found = std::ranges::find(aliases, param, &GivenParam::param);
    return found == aliases.end() ? param : found->name;
  }

  std::vector<std::string_view> given;
  std::vector<GivenParam> aliases;
  GenerationParams params;  // without lists and texts
};

// Returns the warnings about fields of the request that change nothing, as one;
// empty if there are none. `taken` are the model's defaults that it has.
std::string IdleNote(const OwnWords& words, const NamedValues& taken,
                     const GenerationDefaults& defaults) {
  GenerationParams params = words.params;
  for (const NamedValues::value_type& value : taken) {
    const auto& fields = defaults.fields;
    if (std::ranges::find(fields, value) == fields.end()) continue;
    ParamNamed(ParamOfDefault(value.first))
        .member.copy(defaults.params, &params);
  }
  return absl::StrJoin(
      IdleFieldWarnings(params, words.given,
                        [&](std::string_view param) {
                          return std::string(words.NameOf(param));
                        }),
      "; ");
}

std::vector<DrawNote> NotesOn(const std::string& id, const OwnWords& words,
                              const Generation& answer,
                              const Runtime& runtime) {
  const NamedValues& taken = answer.usage.defaults;
  std::vector<DrawNote> notes = {
      NoteOnDraws(words.params, words.given, taken, runtime.defaults(),
                  words.NameOf("num_beams"),
                  words.NameOf("num_return_sequences"),
                  words.NameOf("do_sample")),
      {DrawNoteKind::kSpeculation,
       runtime.NoteOnSpeculation(words.params, words.given)},
      {DrawNoteKind::kIdle, IdleNote(words, taken, runtime.defaults())}};
  std::erase_if(notes, [](const DrawNote& note) { return note.text.empty(); });
  for (DrawNote& note : notes) {
    note.text = Concat("request ", id, ": ", note.text);
  }
  return notes;
}

}  // namespace

boost::asio::awaitable<LineAnswer> RunLine(Runtime* runtime, std::string line,
                                           int64_t line_number,
                                           const BatchOptions& options) {
  RequestLine request = {
      "", InvalidArgument("a line may have ", options.max_line_bytes,
                          " bytes (--max-line-bytes), this one has more")};
  if (std::ssize(line) <= options.max_line_bytes) {
    request = ParseRequestLine(line, options.limits);
  }
  std::string().swap(line);  // its memory is the request's from now on
  if (request.id.empty()) request.id = std::to_string(line_number);
  if (!request.body.ok()) {
    const absl::Status wrong = request.body.status();
    co_return LineAnswer{WriteErrorLine(request.id, wrong), wrong.code()};
  }
  std::string& caller_id = request.body->caller_id;
  if (caller_id.empty()) caller_id = request.id;
  const OwnWords words(*request.body);
  const absl::StatusOr<Generation> answer =
      co_await runtime->Run(*std::move(request.body));
  if (!answer.ok()) {
    const absl::Status status = InWordsOfLine(words.aliases, answer.status());
    co_return LineAnswer{WriteErrorLine(request.id, status), status.code()};
  }
  LineAnswer written = {WriteResultLine(request.id, *answer, answer->texts)};
  written.notes = NotesOn(request.id, words, *answer, *runtime);
  co_return written;
}

}  // namespace espalier::cli
