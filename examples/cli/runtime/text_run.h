// TextRun: the texts of one espalier generate, on their way from a source to an
// output. All run together, up to some thousands that are read and not printed
// yet, so that an endless pipe needs no endless memory. They are printed in
// their order, each as soon as it and all before it have ended, or, streamed
// (stream_output.h), while it runs.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/cli/input/text_source.h"
#include "examples/cli/options/option_names.h"
#include "examples/cli/output/output.h"
#include "examples/cli/output/text_printer.h"
#include "examples/cli/runtime/runtime.h"
#include "request/generation_params.h"

namespace espalier::cli {

// Bytes of texts that are read and not printed yet, and of what there is to
// print of them: with as many no text is read.
inline constexpr size_t kMaxWaitingBytes = 64 << 20;

// REQUIRES: the runtime has a tokenizer; all outlive the coroutines below.
struct TextRun {
  Runtime& runtime;
  TextSource& source;
  const GenerationParams& params;
  const std::vector<std::string_view>& given;  // RequestBody::given
  std::optional<bool> split_sentences;         // RequestBody::split_sentences
  const OptionNames& names;                    // for errors
  Output& output;
};

// Outcome of the run.
struct RunOutcome {
  Outcome texts;
  absl::Status read;  // why reading the texts ended before their end
  int signal = 0;     // that ended it, or 0
};

// Runs all texts to their end, or until a signal comes. Blocks.
// Errors: those of Interrupt::Listen.
absl::StatusOr<RunOutcome> RunTexts(const TextRun& run, bool stream);

// Checks that `text` can be run.
// Errors: kInvalidArgument for a line that was cut because it is too long, and
// for a blank text.
absl::Status CheckText(const std::string& text);

// Prints each text's hypotheses. While a reader keeps it waiting nothing runs,
// as in batch, and figures count that. If the output cannot be written all
// requests end; texts that a signal cancels are left out.
boost::asio::awaitable<RunOutcome> PrintTexts(const TextRun& run);

}  // namespace espalier::cli
