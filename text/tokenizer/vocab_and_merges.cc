#include "text/tokenizer/vocab_and_merges.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kMaxVocabFileBytes = size_t{64} << 20;

// The lines of merges.txt but for its comment, "#version: 0.2".
json::array MergesOf(std::string_view text) {
  json::array merges;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version"))
      merges.emplace_back(json::string_view(line));
  }
  return merges;
}

absl::StatusOr<json::object> ReadVocab(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxVocabFileBytes));
  const absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return InvalidArgument(path, " must hold an object, got ", Shown(&*value));
  }
  return value->get_object();
}

}  // namespace

absl::StatusOr<json::object> ReadVocabAndMerges(const std::string& directory,
                                                size_t* num_bytes) {
  const std::string path = directory + "/vocab.json";
  ASSIGN_OR_RETURN(json::object vocab, ReadVocab(path));
  ASSIGN_OR_RETURN(const std::string merges,
                   ReadFile(directory + "/merges.txt", kMaxVocabFileBytes));
  *num_bytes = merges.size();
  return json::object{{"vocab", std::move(vocab)},
                      {"merges", MergesOf(merges)}};
}

}  // namespace espalier
