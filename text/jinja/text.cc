#include "text/jinja/text.h"

#include <algorithm>

namespace espalier::jinja {

void Text::Append(std::string_view bytes, bool is_input) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    first_is_input_ = is_input;
    changes_.clear();
  } else if (last_is_input() != is_input) {
    changes_.push_back(bytes_.size());
  }
  bytes_ += bytes;
}

void Text::AppendPart(const Text& other, size_t begin, size_t size) {
  const std::string_view bytes(other.bytes_);
  const size_t end = begin + size;
  auto change = std::ranges::upper_bound(other.changes_, begin);
  bool is_input =
      other.first_is_input_ != ((change - other.changes_.begin()) % 2 == 1);
  while (begin < end) {
    const size_t run_end =
        change == other.changes_.end() ? end : std::min(end, *change++);
    Append(bytes.substr(begin, run_end - begin), is_input);
    begin = run_end;
    is_input = !is_input;
  }
}

Text Text::Part(size_t begin, size_t size) const {
  Text part;
  part.AppendPart(*this, begin, size);
  return part;
}

std::vector<Text::Run> Text::Runs() const {
  std::vector<Run> runs;
  size_t begin = 0;
  bool is_input = first_is_input_;
  for (const size_t change : changes_) {
    runs.push_back({begin, change, is_input});
    begin = change;
    is_input = !is_input;
  }
  if (begin < bytes_.size()) runs.push_back({begin, bytes_.size(), is_input});
  return runs;
}

}  // namespace espalier::jinja
