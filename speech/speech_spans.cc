#include "speech/speech_spans.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "speech/voice_activity.h"

namespace espalier {
namespace {

constexpr double kSamplesPerMs = kSpeechRate / 1000.0;
// Silence at which a span that is too long is split.
constexpr double kSplitSilenceMs = 98;

class SpeechReader : public AudioReader {
 public:
  SpeechReader(std::unique_ptr<AudioReader> reader,
               std::vector<SpeechSpan> spans)
      : reader_(std::move(reader)), spans_(std::move(spans)) {}

  const std::string& name() const override { return reader_->name(); }
  const AudioFormat& format() const override { return reader_->format(); }

  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    size_t num_read = 0;
    while (num_read < samples.size() && span_ < spans_.size()) {
      const SpeechSpan& span = spans_[span_];
      if (at_ >= span.end) {
        ++span_;
        continue;
      }
      RETURN_IF_ERROR(SkipTo(span.first));
      const auto want = static_cast<size_t>(std::min<int64_t>(
          span.end - at_, static_cast<int64_t>(samples.size() - num_read)));
      ASSIGN_OR_RETURN(const size_t got,
                       reader_->Read(samples.subspan(num_read, want)));
      if (got == 0) break;
      at_ += static_cast<int64_t>(got);
      num_read += got;
    }
    return num_read;
  }

 private:
  absl::Status SkipTo(int64_t first) {
    std::vector<float> skipped;
    while (at_ < first) {
      skipped.resize(static_cast<size_t>(
          std::min<int64_t>(first - at_, int64_t{1} << 16)));
      ASSIGN_OR_RETURN(const size_t got, reader_->Read(skipped));
      if (got == 0) break;
      at_ += static_cast<int64_t>(got);
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<AudioReader> reader_;
  const std::vector<SpeechSpan> spans_;
  size_t span_ = 0;
  int64_t at_ = 0;  // samples read of the whole audio
};

}  // namespace

void VadOptions::SetChunkDefaults(
    const std::function<bool(std::string_view name)>& is_given) {
  const VadOptions defaults = ForChunks();
  if (!is_given("vad_min_silence_duration_ms")) {
    min_silence_duration_ms = defaults.min_silence_duration_ms;
  }
  if (!is_given("vad_max_speech_duration_s")) {
    max_speech_duration_s = defaults.max_speech_duration_s;
  }
}

absl::Status CheckVadOptions(const VadOptions& options) {
  const auto check = [](std::string_view field, double value, double least,
                        double most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return InvalidField(OptionName{field}, " must be in [", least, ", ", most,
                        "]", Got(value));
  };
  constexpr double kMostMs = 1e9;
  RETURN_IF_ERROR(check("vad_threshold", options.threshold, 0, 1));
  if (options.neg_threshold) {
    RETURN_IF_ERROR(check("vad_neg_threshold", *options.neg_threshold, 0,
                          options.threshold));
  }
  RETURN_IF_ERROR(check("vad_min_speech_duration_ms",
                        options.min_speech_duration_ms, 0, kMostMs));
  RETURN_IF_ERROR(check("vad_min_silence_duration_ms",
                        options.min_silence_duration_ms, 0, kMostMs));
  RETURN_IF_ERROR(
      check("vad_speech_pad_ms", options.speech_pad_ms, 0, kMostMs));
  const double least = 1 + 2 * options.speech_pad_ms / 1000;
  if (options.max_speech_duration_s >= least) return absl::OkStatus();
  return InvalidField(OptionName{"vad_max_speech_duration_s"},
                      " must be at least ", least, ", a second and twice ",
                      OptionName{"vad_speech_pad_ms"},
                      Got(options.max_speech_duration_s));
}

SpeechFinder::SpeechFinder(const VadOptions& options)
    : threshold_(options.threshold),
      end_threshold_(options.neg_threshold.value_or(
          std::max(options.threshold - 0.15, 0.01))),
      min_speech_(options.min_speech_duration_ms * kSamplesPerMs),
      min_silence_(options.min_silence_duration_ms * kSamplesPerMs),
      max_speech_(options.max_speech_duration_s * kSpeechRate -
                  VoiceActivity::kWindow -
                  2 * options.speech_pad_ms * kSamplesPerMs),
      pad_(options.speech_pad_ms * kSamplesPerMs) {}

void SpeechFinder::Push(std::span<const float> probabilities,
                        std::vector<SpeechSpan>* spans) {
  for (const float probability : probabilities) {
    Add(probability, spans);
    // Its padding is no longer half of the silence after it.
    if (last_ &&
        static_cast<double>(start_.value_or(at_) - last_->end) >= 2 * pad_) {
      last_->end += static_cast<int64_t>(pad_);
      spans->push_back(*last_);
      last_.reset();
    }
    at_ += VoiceActivity::kWindow;
  }
}

void SpeechFinder::Finish(int64_t num_samples, std::vector<SpeechSpan>* spans) {
  if (start_) EndIfLong(num_samples, spans);
  if (!last_) return;
  last_->end = std::min(num_samples, last_->end + static_cast<int64_t>(pad_));
  spans->push_back(*last_);
}

int64_t SpeechFinder::first_open() const {
  if (last_) return last_->first;
  return std::max<int64_t>(0,
                           start_.value_or(at_) - static_cast<int64_t>(pad_));
}

void SpeechFinder::Add(double probability, std::vector<SpeechSpan>* spans) {
  const bool is_speech = probability >= threshold_;
  if (is_speech && silence_) {
    silence_.reset();
    // Speech after the silence where the span may be split.
    if (split_ && !after_split_) after_split_ = at_;
  }
  if (!start_) {
    if (is_speech) start_ = at_;
    return;
  }
  if (static_cast<double>(at_ - *start_) > max_speech_) {
    if (!split_) {
      End(at_, spans);
      return;
    }
    const std::optional<int64_t> next = after_split_;
    End(*split_, spans);
    start_ = next;
    if (!start_) return;
  }
  if (probability >= end_threshold_) return;
  if (!silence_) silence_ = at_;
  const auto silence = static_cast<double>(at_ - *silence_);
  if (silence > kSplitSilenceMs * kSamplesPerMs) {
    split_ = silence_;
    after_split_.reset();
  }
  if (silence >= min_silence_) EndIfLong(*silence_, spans);
}

// Pads the span at its beginning, and the one before at its end: by half of the
// silence between them at most.
void SpeechFinder::End(int64_t end, std::vector<SpeechSpan>* spans) {
  auto pad = static_cast<int64_t>(pad_);
  if (last_) {
    const int64_t silence = *start_ - last_->end;
    if (static_cast<double>(silence) < 2 * pad_) pad = silence / 2;
    last_->end += pad;
    spans->push_back(*last_);
  }
  last_ = {std::max<int64_t>(0, *start_ - pad), end};
  Forget();
}

void SpeechFinder::EndIfLong(int64_t end, std::vector<SpeechSpan>* spans) {
  if (static_cast<double>(end - *start_) > min_speech_) {
    End(end, spans);
  } else {
    Forget();
  }
}

void SpeechFinder::Forget() {
  start_.reset();
  silence_.reset();
  split_.reset();
  after_split_.reset();
}

std::vector<SpeechSpan> FindSpeech(std::span<const float> probabilities,
                                   int64_t num_samples,
                                   const VadOptions& options) {
  SpeechFinder finder(options);
  std::vector<SpeechSpan> spans;
  finder.Push(probabilities, &spans);
  finder.Finish(num_samples, &spans);
  return spans;
}

SpeechTimes::SpeechTimes(std::vector<SpeechSpan> spans)
    : spans_(std::move(spans)) {
  int64_t size = 0;
  for (const SpeechSpan& span : spans_) {
    size += span.end - span.first;
    ends_.push_back(size);
  }
}

int64_t SpeechTimes::num_samples() const {
  return ends_.empty() ? 0 : ends_.back();
}

double SpeechTimes::InSpan(size_t span, double seconds) const {
  if (spans_.empty()) return seconds;
  span = std::min(span, spans_.size() - 1);
  return seconds +
         static_cast<double>(spans_[span].end - ends_[span]) / kSpeechRate;
}

size_t SpeechTimes::SpanAt(double seconds) const {
  const int64_t sample = std::llround(seconds * kSpeechRate);
  return std::ranges::upper_bound(ends_, sample) - ends_.begin();
}

double SpeechTimes::BeginOf(double seconds) const {
  return InSpan(SpanAt(seconds), seconds);
}

std::pair<double, double> SpeechTimes::BothOf(double start, double end) const {
  const size_t span = SpanAt((start + end) / 2);
  return {InSpan(span, start), InSpan(span, end)};
}

double SpeechTimes::EndOf(double seconds) const {
  const int64_t sample = std::llround(seconds * kSpeechRate);
  const auto at = std::ranges::lower_bound(ends_, sample);
  // At an end exactly, it is that of the span before.
  if (at != ends_.end() && *at == sample) {
    return InSpan(at - ends_.begin(), seconds);
  }
  return BeginOf(seconds);
}

std::unique_ptr<AudioReader> ReadSpansOnly(std::unique_ptr<AudioReader> reader,
                                           std::vector<SpeechSpan> spans) {
  return std::make_unique<SpeechReader>(std::move(reader), std::move(spans));
}

}  // namespace espalier
