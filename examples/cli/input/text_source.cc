#include "examples/cli/input/text_source.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace espalier::cli {

absl::StatusOr<std::unique_ptr<TextSource>> TextSource::Open(
    std::vector<std::string> texts, const std::string& file,
    const std::string& option) {
  if (!texts.empty() && !file.empty()) {
    return InvalidArgument("give texts or ", option, ", not both");
  }
  const bool is_stdin = std::ranges::find(texts, "-") != texts.end();
  if (is_stdin && texts.size() > 1) {
    return InvalidArgument(
        "give texts or -, which is the lines of stdin, not both");
  }
  if (!texts.empty() && !is_stdin) {
    return std::unique_ptr<TextSource>(
        new TextSource(std::move(texts), nullptr));
  }
  if (texts.empty() && file.empty() && isatty(STDIN_FILENO)) {
    return InvalidArgument("no text: give it as an argument, with ", option,
                           ", or through a pipe");
  }
  absl::StatusOr<std::unique_ptr<LineReader>> reader =
      LineReader::Open(file.empty() ? "-" : file);
  if (!reader.ok()) return Annotate(reader.status(), option);
  return std::unique_ptr<TextSource>(new TextSource({}, *std::move(reader)));
}

TextSource::TextSource(std::vector<std::string> texts,
                       std::unique_ptr<LineReader> reader)
    : texts_(std::move(texts)),
      num_known_(static_cast<int>(texts_.size())),
      reader_(std::move(reader)) {
  if (reader_ != nullptr) async_reader_.emplace(reader_.get());
}

boost::asio::awaitable<absl::StatusOr<std::vector<std::string>>>
TextSource::Read() {
  std::vector<std::string> texts = std::exchange(texts_, {});
  while (reader_ != nullptr && texts.empty()) {
    absl::StatusOr<std::vector<std::string>> lines =
        co_await async_reader_->Read();
    if (!lines.ok()) co_return lines.status();
    if (lines->empty()) break;
    texts = *std::move(lines);
    std::erase_if(texts, [](const std::string& line) {
      return line.find_first_not_of(" \t") == line.npos;
    });
  }
  co_return texts;
}

void TextSource::Stop() {
  stopped_ = true;
  if (reader_ != nullptr) reader_->Stop();
}

const std::string& TextSource::name() const {
  static const std::string* const kArguments = new std::string("arguments");
  return reader_ == nullptr ? *kArguments : reader_->name();
}

}  // namespace espalier::cli
