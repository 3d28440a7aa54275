#include "speech/speech_chunks.h"

#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

int64_t NumSamples(const std::vector<SpeechSpan>& spans) {
  int64_t sum = 0;
  for (const SpeechSpan& span : spans) sum += span.end - span.first;
  return sum;
}

}  // namespace

std::vector<std::vector<SpeechSpan>> GroupSpans(
    const std::vector<SpeechSpan>& spans, int64_t max_samples) {
  std::vector<std::vector<SpeechSpan>> groups;
  int64_t size = 0;  // samples in the last group
  for (const SpeechSpan& span : spans) {
    const int64_t more = span.end - span.first;
    if (groups.empty() || size + more > max_samples) {
      groups.emplace_back();
      size = 0;
    }
    groups.back().push_back(span);
    size += more;
  }
  return groups;
}

SpeechChunks::SpeechChunks(std::vector<std::vector<SpeechSpan>> groups,
                           std::unique_ptr<AudioReader> speech)
    : groups_(std::move(groups)), speech_(std::move(speech)) {}

absl::StatusOr<std::optional<SpeechChunk>> SpeechChunks::Next() {
  const std::lock_guard lock(mutex_);
  if (next_ == size()) return std::nullopt;
  const std::vector<SpeechSpan>& spans = groups_[static_cast<size_t>(next_)];
  std::vector<float> samples(static_cast<size_t>(NumSamples(spans)));
  ASSIGN_OR_RETURN(const size_t num_read, speech_->Read(samples));
  if (num_read < samples.size()) {
    return InvalidArgument(speech_->name(), " has become shorter");
  }
  SpeechChunk chunk = {
      .index = next_++,
      .first = num_samples_,
      .spans = spans,
      .samples = std::make_shared<const std::vector<float>>(std::move(samples)),
      .name = speech_->name()};
  num_samples_ += std::ssize(*chunk.samples);
  return chunk;
}

}  // namespace espalier
