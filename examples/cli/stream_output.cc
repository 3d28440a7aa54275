#include "examples/cli/stream_output.h"

#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "beam/selection_options.h"
#include "examples/cli/printing.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// Prints one text's events. Their texts are whole characters, so that each can
// be shown by itself.
class StreamPrinter {
 public:
  StreamPrinter(bool numbers_samples, Output* output)
      : numbers_samples_(numbers_samples), output_(output) {}

  void Print(const SampleEvent& event) {
    if (event.text.empty()) return;
    if (numbers_samples_) {
      output_->Write(Concat("  [", event.sample, "] ", event.text, "\n"));
    } else {
      Grow(event.text);
    }
  }
  void Print(const PrefixEvent& event) { Grow(event.text); }
  void Print(const BeamsEvent&) {}
  void Print(const Result&) { EndLine(); }

  // Ends the line that grows, if one does.
  void EndLine() {
    if (std::exchange(grows_, false)) output_->Write("\n");
  }

 private:
  void Grow(const std::string& text) {
    if (text.empty()) return;
    output_->Write((std::exchange(grows_, true) ? "" : "  ") + text);
  }

  const bool numbers_samples_;
  Output* const output_;
  bool grows_ = false;
};

// Reads and prints until the result is there.
asio::awaitable<absl::StatusOr<Result>> PrintUntilResult(ResultStream& stream,
                                                         StreamPrinter& printer,
                                                         Output& output) {
  while (true) {
    absl::StatusOr<std::optional<StreamEvent>> event = co_await stream.Next();
    if (!event.ok()) co_return event.status();
    std::visit([&](const auto& e) { printer.Print(e); }, **event);
    if (auto* result = std::get_if<Result>(&**event)) {
      co_return std::move(*result);
    }
    output.Flush();
    if (output.failed()) co_return absl::CancelledError("nobody reads");
  }
}

// Whether there is more to say of a result than its text.
bool HasReports(const Result& result) {
  return result.seed.has_value() || result.prompt_logprobs ||
         !result.hypotheses.front().logprobs.empty();
}

// Returns what became of a text that has begun.
asio::awaitable<absl::Status> PrintStream(const Runtime& runtime,
                                          const GenerationParams& params,
                                          ResultStream& stream,
                                          Output& output) {
  output.Flush();
  const bool is_one_sample = !IsBeamSearch(params) && NumSequences(params) == 1;
  StreamPrinter printer(!is_one_sample, &output);
  const Answer answer = runtime.MakeAnswer(
      params, co_await PrintUntilResult(stream, printer, output));
  printer.EndLine();
  if (!answer.result.ok()) co_return answer.result.status();
  if (!is_one_sample || HasReports(*answer.result)) {
    output.Write(FormatHypotheses(answer));
  }
  output.Flush();
  co_return absl::OkStatus();
}

}  // namespace

asio::awaitable<Outcome> StreamAll(Runtime& runtime,
                                   const std::vector<std::string>& texts,
                                   const GenerationParams& params,
                                   Output& output) {
  std::vector<absl::StatusOr<ResultStream>> streams;
  for (const std::string& text : texts) {
    // GCC 12 destroys a braced temporary in an awaited call twice.
    RequestBody body = {text, {}, params};
    streams.push_back(co_await runtime.Stream(std::move(body)));
  }
  TextPrinter printer(texts.size(), &output);
  for (size_t i = 0; i < texts.size() && !output.failed(); ++i) {
    absl::Status status = streams[i].status();
    if (status.ok()) {
      printer.Begin(texts[i]);
      status = co_await PrintStream(runtime, params, *streams[i], output);
    }
    printer.End(texts[i], status);
    if (status.code() == absl::StatusCode::kCancelled) break;
  }
  co_return printer.Finish();
}

}  // namespace espalier::cli
