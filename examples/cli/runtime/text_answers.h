// Answers to texts, whole or read while they are generated, on a Runtime: a
// text that is split into sentences (espalier/split_text.h) is a request for
// each, which run together, some hundred at a time.
//
// Thread safety: each coroutine and each stream on one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "espalier/generator.h"
#include "espalier/split_text.h"
#include "request/json/request_json.h"
#include "request/stream_event.h"

namespace espalier::cli {

class Runtime;

// The texts that a request's prompt makes: it, or its sentences.
struct TextParts {
  RequestBody body;
  std::optional<SplitText> split;     // unset for a single text
  std::optional<uint64_t> seed = {};  // shared by all parts, once one is open
  std::string_view whole_for = {};    // FieldOfWholeText, a literal

  size_t size() const { return split ? split->sentences.size() : 1; }
};

// The answer to all parts.
boost::asio::awaitable<absl::StatusOr<Generation>> AnswerTexts(Runtime* runtime,
                                                               TextParts parts);

// Streams the answer to all parts while it is generated.
class AnswerStream {
 public:
  // Opens the first requests.
  // Errors: as Engine::Stream.
  static boost::asio::awaitable<absl::StatusOr<AnswerStream>> Open(
      Runtime* runtime, TextParts parts);

  // The next event, none of which is a Result; nullopt at the end.
  boost::asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>> Next();
  // REQUIRES: Next has returned nullopt.
  Generation TakeAnswer();

  // 0: they are beams.
  int num_samples() const { return num_samples_; }

 private:
  struct Part {
    ResultStream stream;
    decltype(EngineRequest::finish) finish;
  };

  AnswerStream(Runtime* runtime, TextParts parts)
      : runtime_(runtime), parts_(std::move(parts)) {}
  boost::asio::awaitable<absl::Status> OpenSome();

  Runtime* runtime_;
  TextParts parts_;
  std::optional<SentenceJoiner> joiner_;  // unset for a single text
  int num_samples_ = 0;
  std::deque<Part> open_;  // the first is read
  size_t num_opened_ = 0;
  std::vector<Generation> answers_;
};

}  // namespace espalier::cli
