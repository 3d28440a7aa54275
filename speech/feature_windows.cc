#include "speech/feature_windows.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace espalier {
namespace {

// Silence behind the audio: as far as the last frames look.
constexpr int kSilence = 2 * kFrameSize;

// Reads `block` full, pushes it, and at the end silence. Returns the samples
// of audio in it, fewer than it has room for at the end.
absl::StatusOr<size_t> PushBlock(AudioReader& reader, std::vector<float>& block,
                                 LogMelStream& stream,
                                 std::vector<float>& logs) {
  ASSIGN_OR_RETURN(const size_t size, reader.Read(block));
  stream.Push(std::span(block).first(size), logs);
  if (size < block.size()) {
    stream.Push(std::vector<float>(kSilence), logs);
    stream.Finish(logs);
  }
  return size;
}

}  // namespace

FeatureWindows::FeatureWindows(std::unique_ptr<AudioReader> reader,
                               int num_bands, int block_size)
    : log_mel_(std::make_unique<const LogMel>(num_bands)),
      reader_(std::move(reader)),
      stream_(std::in_place, *log_mel_),
      block_(static_cast<size_t>(block_size)) {}

absl::StatusOr<FeatureWindows> FeatureWindows::Open(const OpenAudio& open,
                                                    int num_bands,
                                                    int block_size) {
  CHECK_GE(block_size, 1);
  ASSIGN_OR_RETURN(std::unique_ptr<AudioReader> first, open());
  FeatureWindows windows(std::move(first), num_bands, block_size);
  LogMelStream stream(*windows.log_mel_);
  windows.max_log_ = -10;  // the least logarithm
  std::vector<float> logs;
  for (size_t size = windows.block_.size(); size == windows.block_.size();) {
    ASSIGN_OR_RETURN(size,
                     PushBlock(*windows.reader_, windows.block_, stream, logs));
    windows.num_samples_ += static_cast<int64_t>(size);
    for (const float log : logs) {
      windows.max_log_ = std::max(windows.max_log_, log);
    }
    logs.clear();
  }
  windows.num_frames_ = LogMel::NumFrames(windows.num_samples_);
  if (windows.num_frames_ == 0) {
    return InvalidArgument(windows.reader_->name(),
                           " must have at least 10 ms of audio, got ",
                           windows.num_samples_, " samples at 16 kHz");
  }
  ASSIGN_OR_RETURN(windows.reader_, open());
  return windows;
}

absl::Status FeatureWindows::ReadBlock() {
  ASSIGN_OR_RETURN(const size_t size,
                   PushBlock(*reader_, block_, *stream_, rows_));
  is_at_end_ = size < block_.size();
  DropForgotten();
  return absl::OkStatus();
}

void FeatureWindows::DropForgotten() {
  const int64_t count =
      std::clamp<int64_t>(first_kept_, first_row_, end_row()) - first_row_;
  rows_.erase(rows_.begin(), rows_.begin() + count * log_mel_->num_bands());
  first_row_ += count;
}

void FeatureWindows::ForgetBefore(int64_t frame) {
  first_kept_ = std::max(first_kept_, frame);
  DropForgotten();
}

absl::Status FeatureWindows::RewindTo(int64_t frame, const OpenAudio& open) {
  if (frame >= first_kept_) return absl::OkStatus();
  ASSIGN_OR_RETURN(reader_, open());
  stream_.emplace(*log_mel_);
  rows_.clear();
  first_row_ = 0;
  first_kept_ = frame;
  is_at_end_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const FeatureMatrix>> FeatureWindows::Window(
    int64_t first, int64_t size, int num_rows) {
  CHECK_GE(first, std::max(first_row_, first_kept_));
  CHECK_GE(size, 1);
  CHECK_LE(size, num_rows);
  CHECK_LT(first, num_frames_);
  size = std::min(size, num_frames_ - first);
  while (end_row() < first + size) {
    if (is_at_end_) {
      return InvalidArgument(reader_->name(), " has become shorter: frame ",
                             end_row(), " of ", num_frames_, " is missing");
    }
    RETURN_IF_ERROR(ReadBlock());
  }
  const auto num_bands = static_cast<int64_t>(log_mel_->num_bands());
  const auto begin = rows_.begin() + (first - first_row_) * num_bands;
  auto features = std::make_shared<FeatureMatrix>();
  features->shape = {.num_rows = num_rows,
                     .num_cols = static_cast<int>(num_bands)};
  features->values.assign(begin, begin + size * num_bands);
  ScaleLogMel(max_log_, features->values);
  features->values.resize(static_cast<size_t>(num_rows * num_bands));
  return features;
}

}  // namespace espalier
