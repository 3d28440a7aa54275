#include "examples/cli/commands/batch_line.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "request/json/request_json.h"
#include "request/json/result_json.h"

namespace espalier::cli {
namespace {

// Fields that the request itself gives, kept while its body runs.
struct OwnWords {
  explicit OwnWords(const RequestBody& body)
      : given(body.given), aliases(body.aliases) {
    draws.do_sample = body.params.do_sample;
    draws.best_of = body.params.best_of;
    draws.num_beams = body.params.num_beams;
    draws.num_beam_groups = body.params.num_beam_groups;
    draws.stochastic = body.params.stochastic;
    draws.speculate = body.params.speculate;
    draws.num_return_sequences = body.params.num_return_sequences;
  }

  std::string_view NameOf(std::string_view param) const {
    const auto found = std::ranges::find(aliases, param, &GivenAlias::param);
    return found == aliases.end() ? param : found->alias;
  }

  std::vector<std::string_view> given;
  std::vector<GivenAlias> aliases;
  GenerationParams draws;  // only the fields that select a search
};

DrawNote NoteOn(const std::string& id, const OwnWords& words,
                const Generation& answer, const Runtime& runtime) {
  DrawNote note = NoteOnDraws(words.draws, words.given, answer.usage.defaults,
                              runtime.defaults(), words.NameOf("num_beams"),
                              words.NameOf("num_return_sequences"),
                              words.NameOf("do_sample"));
  if (note.kind == DrawNoteKind::kNone) {
    note.text = runtime.NoteOnSpeculation(words.draws, words.given);
    if (!note.text.empty()) note.kind = DrawNoteKind::kSpeculation;
  }
  if (note.kind != DrawNoteKind::kNone) {
    note.text = Concat("request ", id, ": ", note.text);
  }
  return note;
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
  written.note = NoteOn(request.id, words, *answer, *runtime);
  co_return written;
}

}  // namespace espalier::cli
