#include "examples/cli/stream_output.h"

#include <cstdio>
#include <optional>
#include <utility>
#include <variant>

#include "beam/selection_options.h"
#include "examples/cli/printing.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// Prints one text's events.
class StreamPrinter {
 public:
  explicit StreamPrinter(bool numbers_samples)
      : numbers_samples_(numbers_samples) {}

  void Print(const SampleEvent& event) {
    if (event.text.empty()) return;
    if (numbers_samples_) {
      std::printf("  [%d] %s\n", event.sample, event.text.c_str());
    } else {
      Grow(event.text);
    }
  }
  void Print(const PrefixEvent& event) { Grow(event.text); }
  void Print(const BeamsEvent&) {}
  void Print(const Result&) { EndLine(); }

  // Ends the line that grows, if one does.
  void EndLine() {
    if (std::exchange(grows_, false)) std::printf("\n");
  }

 private:
  void Grow(const std::string& text) {
    if (text.empty()) return;
    std::printf("%s%s", std::exchange(grows_, true) ? "" : "  ", text.c_str());
  }

  const bool numbers_samples_;
  bool grows_ = false;
};

// Reads and prints until the result is there.
asio::awaitable<absl::StatusOr<Result>> PrintUntilResult(
    ResultStream& stream, StreamPrinter& printer) {
  while (true) {
    absl::StatusOr<std::optional<StreamEvent>> event = co_await stream.Next();
    if (!event.ok()) co_return event.status();
    std::visit([&](const auto& e) { printer.Print(e); }, **event);
    if (auto* result = std::get_if<Result>(&**event)) {
      co_return std::move(*result);
    }
    std::fflush(stdout);
  }
}

// Whether there is more to say of a result than its text.
bool HasReports(const Result& result) {
  return result.seed.has_value() || result.prompt_logprobs ||
         !result.hypotheses.front().logprobs.empty();
}

// True if it succeeded.
asio::awaitable<bool> PrintStream(const Runtime& runtime,
                                  const std::string& text,
                                  const GenerationParams& params,
                                  absl::StatusOr<ResultStream> stream) {
  if (!stream.ok()) {
    PrintFailure(text, stream.status());
    co_return false;
  }
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  const bool is_one_sample = !IsBeamSearch(params) && NumSequences(params) == 1;
  StreamPrinter printer(!is_one_sample);
  const Answer answer =
      runtime.MakeAnswer(params, co_await PrintUntilResult(*stream, printer));
  printer.EndLine();
  if (!answer.result.ok()) {
    PrintFailure(text, answer.result.status());
    co_return false;
  }
  if (!is_one_sample || HasReports(*answer.result)) PrintHypotheses(answer);
  co_return true;
}

}  // namespace

asio::awaitable<int> StreamAll(Runtime& runtime,
                               const std::vector<std::string>& texts,
                               const GenerationParams& params) {
  std::vector<absl::StatusOr<ResultStream>> streams;
  for (const std::string& text : texts) {
    // GCC 12 destroys a braced temporary in an awaited call twice.
    RequestBody body = {text, {}, params};
    streams.push_back(co_await runtime.Stream(std::move(body)));
  }
  int num_failed = 0;
  for (size_t i = 0; i < texts.size() && !std::ferror(stdout); ++i) {
    if (i > 0) std::printf("\n");
    num_failed +=
        !co_await PrintStream(runtime, texts[i], params, std::move(streams[i]));
  }
  co_return num_failed;
}

}  // namespace espalier::cli
