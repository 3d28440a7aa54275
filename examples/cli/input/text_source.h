// TextSource: the texts that espalier generate runs: arguments, which are all
// there at once, or the lines of a file or of stdin, as they come, without
// blank ones.
//
//   ASSIGN_OR_RETURN(const auto source, TextSource::Open(texts, file));
//   while (true) {
//     auto texts = co_await source->Read();
//     if (!texts.ok() || texts->empty()) break;
//   }
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/cli/input/async_line_reader.h"
#include "examples/cli/input/line_reader.h"

namespace espalier::cli {

class TextSource {
 public:
  // Opens `texts` as they are, if there are any; otherwise the lines of `file`.
  // A single text "-", or no file, is stdin. `option` names the file in errors.
  // Errors: kInvalidArgument if both are given, or if stdin is a terminal and
  // was not named; kNotFound if the file cannot be opened.
  static absl::StatusOr<std::unique_ptr<TextSource>> Open(
      std::vector<std::string> texts, const std::string& file,
      const std::string& option);

  // The texts that are there: at least one, for which it waits, or none at the
  // end. One caller at a time.
  // Errors: those of LineReader::Read.
  boost::asio::awaitable<absl::StatusOr<std::vector<std::string>>> Read();

  // Ends the texts, as LineReader::Stop. Callers drop texts that they have not
  // begun. Called on the thread that reads.
  void Stop();
  bool stopped() const { return stopped_; }

  // Number of texts; 0 if it is not known.
  int num_known() const { return num_known_; }
  // "stdin", or the file's path.
  const std::string& name() const;

 private:
  TextSource(std::vector<std::string> texts,
             std::unique_ptr<LineReader> reader);

  std::vector<std::string> texts_;  // arguments, until they are read
  const int num_known_;
  bool stopped_ = false;
  const std::unique_ptr<LineReader> reader_;  // null: arguments
  std::optional<AsyncLineReader> async_reader_;
};

}  // namespace espalier::cli
