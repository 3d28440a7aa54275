#include "speech/speech_chunks.h"

#include <algorithm>
#include <cstddef>

namespace espalier {

void SpeechChunker::Push(std::span<const float> samples,
                         std::vector<SpeechChunk>* chunks) {
  kept_.insert(kept_.end(), samples.begin(), samples.end());
  std::vector<float> probabilities;
  stream_.Push(samples, &probabilities);
  std::vector<SpeechSpan> spans;
  finder_.Push(probabilities, &spans);
  AddSpans(spans, chunks);
  const int64_t count =
      std::min(finder_.first_open(), num_samples()) - first_kept_;
  if (count <= 0) return;
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(count));
  first_kept_ += count;
}

void SpeechChunker::Finish(std::vector<SpeechChunk>* chunks) {
  std::vector<float> probabilities;
  stream_.Finish(&probabilities);
  std::vector<SpeechSpan> spans;
  finder_.Push(probabilities, &spans);
  finder_.Finish(num_samples(), &spans);
  AddSpans(spans, chunks);
  if (!spans_.empty()) EndChunk(num_samples(), chunks);
}

void SpeechChunker::AddSpans(std::span<const SpeechSpan> spans,
                             std::vector<SpeechChunk>* chunks) {
  for (const SpeechSpan& span : spans) {
    const int64_t size = span.end - span.first;
    if (!spans_.empty() && std::ssize(speech_) + size > max_samples_) {
      EndChunk(span.first, chunks);
    }
    spans_.push_back(span);
    const auto begin = kept_.begin() + (span.first - first_kept_);
    speech_.insert(speech_.end(), begin, begin + size);
  }
}

void SpeechChunker::EndChunk(int64_t next, std::vector<SpeechChunk>* chunks) {
  const int64_t first = num_before_;
  num_before_ += std::ssize(speech_);
  chunks->push_back({.index = num_chunks_++,
                     .first = first,
                     .spans = std::exchange(spans_, {}),
                     .next = next,
                     .samples = std::make_shared<const std::vector<float>>(
                         std::exchange(speech_, {})),
                     .name = name_});
}

}  // namespace espalier
