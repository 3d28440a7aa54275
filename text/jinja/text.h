// Text: a string of a template that records the source of each byte: the
// template and its operator, or an input, such as a user's message. Marks
// survive concatenation, slices, trimming, splitting, joining and replacing.
// Text derived from an input in another way (upper case, JSON, a number's
// digits) is an input as a whole. So each byte of a rendered prompt is marked,
// and only bytes of the template may form a special token
// (text/chat/chat_template.h).
//
// Marks change no result of a template: two texts with the same bytes are
// equal.
//
// Thread safety: a plain value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool is_input = false)
      : bytes_(std::move(bytes)), first_is_input_(is_input) {}

  const std::string& bytes() const { return bytes_; }  // UTF-8
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // True if any byte comes from an input.
  bool has_input() const {
    return !bytes_.empty() && (first_is_input_ || !changes_.empty());
  }

  void Append(std::string_view bytes, bool is_input = false);
  void Append(const Text& other) { AppendPart(other, 0, other.size()); }
  // Appends `size` bytes of `other` from `begin` on.
  // REQUIRES: it has them.
  void AppendPart(const Text& other, size_t begin, size_t size);
  Text Part(size_t begin, size_t size) const;

  // A maximal range of bytes of one kind.
  struct Run {
    size_t begin = 0;
    size_t end = 0;
    bool is_input = false;
  };
  // In order; they cover the text, and neighbours differ.
  std::vector<Run> Runs() const;

 private:
  bool last_is_input() const {
    return first_is_input_ != (changes_.size() % 2 == 1);
  }

  std::string bytes_;
  bool first_is_input_ = false;
  std::vector<size_t> changes_;  // where the kind changes; ascending
};

}  // namespace espalier::jinja
