#include "speech/audio_reader.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/status.h"
#include "speech/resampler.h"

namespace espalier {
namespace {

// Numbers decoded at once, of all channels together.
constexpr int kBlockSize = 16384;

// The bytes that libsndfile reads through the functions below, and where it is.
struct ByteSource {
  std::string_view bytes;
  sf_count_t position = 0;
};

sf_count_t SizeOf(void* source) {
  return static_cast<sf_count_t>(
      static_cast<ByteSource*>(source)->bytes.size());
}

sf_count_t SeekIn(sf_count_t offset, int whence, void* data) {
  ByteSource& source = *static_cast<ByteSource*>(data);
  const sf_count_t base = whence == SEEK_CUR   ? source.position
                          : whence == SEEK_END ? SizeOf(data)
                                               : 0;
  sf_count_t position;
  if (__builtin_add_overflow(base, offset, &position) || position < 0)
    return -1;
  return source.position = position;
}

sf_count_t ReadFrom(void* out, sf_count_t count, void* data) {
  ByteSource& source = *static_cast<ByteSource*>(data);
  const sf_count_t left = SizeOf(data) - source.position;
  const sf_count_t size =
      std::clamp<sf_count_t>(count, 0, std::max<sf_count_t>(left, 0));
  if (size == 0) return 0;
  std::memcpy(out, source.bytes.data() + source.position, size);
  source.position += size;
  return size;
}

sf_count_t PositionIn(void* source) {
  return static_cast<ByteSource*>(source)->position;
}

struct CloseSndfile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using Sndfile = std::unique_ptr<SNDFILE, CloseSndfile>;

// Errors: kInvalidArgument with libsndfile's reason.
absl::StatusOr<Sndfile> OpenSndfile(ByteSource& source, SF_INFO& info) {
  // libsndfile has the reason of a failed opening in a global.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  SF_VIRTUAL_IO functions{.get_filelen = &SizeOf,
                          .seek = &SeekIn,
                          .read = &ReadFrom,
                          .write = nullptr,
                          .tell = &PositionIn};
  Sndfile file(sf_open_virtual(&functions, SFM_READ, &info, &source));
  if (file == nullptr) {
    return InvalidArgument("libsndfile cannot read it: ", sf_strerror(nullptr));
  }
  return file;
}

// Returns the name of a format with audio that is not read, by the first bytes
// of a file; empty: none.
std::string_view NameOfContainer(std::string_view bytes) {
  if (bytes.substr(0, 12).find("ftyp") == 4) return "MP4";
  if (bytes.starts_with("\x1a\x45\xdf\xa3")) return "Matroska or WebM";
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("AVI ")) {
    return "AVI";
  }
  if (bytes.starts_with("\x30\x26\xb2\x75\x8e\x66\xcf\x11")) return "ASF";
  if (bytes.starts_with("FLV\x01")) return "FLV";
  // ADTS of MPEG-4 or -2, with or without a checksum.
  for (const std::string_view sync :
       {"\xff\xf0", "\xff\xf1", "\xff\xf8", "\xff\xf9"}) {
    if (bytes.starts_with(sync)) return "AAC";
  }
  return "";
}

std::string NameOfFormat(int format) {
  SF_FORMAT_INFO info{.format = format & SF_FORMAT_TYPEMASK,
                      .name = nullptr,
                      .extension = nullptr};
  sf_command(nullptr, SFC_GET_FORMAT_INFO, &info, sizeof(info));
  return info.name == nullptr ? "unknown" : info.name;
}

// Returns AudioFormat::duration.
double DurationOf(const SF_INFO& info) {
  const bool is_known = info.frames > 0 && info.frames < SF_COUNT_MAX;
  return is_known ? static_cast<double>(info.frames) / info.samplerate : 0;
}

void ClipTo1(std::span<float> samples) {
  for (float& sample : samples) sample = std::clamp(sample, -1.0f, 1.0f);
}

class SndfileReader : public AudioReader {
 public:
  SndfileReader(std::string_view bytes, std::string name)
      : name_(std::move(name)), source_{.bytes = bytes} {}
  SndfileReader(MappedFile file, std::string name)
      : name_(std::move(name)), mapped_(std::move(file)) {
    const auto bytes = mapped_->bytes();
    source_.bytes = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Errors: those of Open. Called once.
  absl::Status Start() {
    if (source_.bytes.empty()) {
      return InvalidArgument(name_, " is empty: no audio");
    }
    SF_INFO info{};
    absl::StatusOr<Sndfile> file = OpenSndfile(source_, info);
    if (!file.ok()) {
      const std::string_view container = NameOfContainer(source_.bytes);
      if (container.empty()) return Annotate(file.status(), name_);
      return InvalidArgument(name_, " is ", container, ", which is not read: ",
                             "make audio of it first, as with ffmpeg -i FILE ",
                             "audio.wav");
    }
    file_ = *std::move(file);
    if (info.samplerate < kMinRate || info.samplerate > kMaxRate) {
      return InvalidArgument(name_, " has ", info.samplerate,
                             " samples a second; from ", kMinRate, " to ",
                             kMaxRate, " are read");
    }
    if (info.channels < 1) {
      return InvalidArgument(name_, " has ", info.channels, " channels");
    }
    format_ = {.name = NameOfFormat(info.format),
               .sample_rate = info.samplerate,
               .num_channels = info.channels,
               .duration = DurationOf(info)};
    frames_in_block_ = std::max(1, kBlockSize / info.channels);
    block_.resize(size_t(frames_in_block_) * info.channels);
    resampler_.emplace(info.samplerate, kSpeechRate);
    return absl::OkStatus();
  }

  const std::string& name() const override { return name_; }
  const AudioFormat& format() const override { return format_; }

  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    size_t count = 0;
    while (count < samples.size()) {
      if (next_ == ready_.size()) {
        if (ended_) break;
        RETURN_IF_ERROR(DecodeBlock());
        continue;
      }
      const size_t size =
          std::min(samples.size() - count, ready_.size() - next_);
      std::copy_n(ready_.begin() + next_, size, samples.begin() + count);
      next_ += size;
      count += size;
    }
    return count;
  }

 private:
  // Makes ready_ the samples of the next block, none at the end.
  absl::Status DecodeBlock() {
    RETURN_IF_ERROR(failure_);
    ready_.clear();
    next_ = 0;
    const sf_count_t num_frames =
        sf_readf_float(file_.get(), block_.data(), frames_in_block_);
    if (sf_error(file_.get()) != SF_ERR_NO_ERROR) {
      return failure_ = InvalidArgument(name_, " cannot be decoded after ",
                                        SecondsRead(),
                                        " s: ", sf_strerror(file_.get()));
    }
    DropRead();
    if (num_frames <= 0) {
      ended_ = true;
      resampler_->Finish(ready_);
      ClipTo1(ready_);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(MixDown(num_frames));
    ClipTo1(mixed_);  // so that sums in the resampler are finite
    resampler_->Push(mixed_, ready_);
    ClipTo1(ready_);
    return absl::OkStatus();
  }

  // Keeps a long file from filling memory with what was decoded.
  void DropRead() {
    constexpr sf_count_t kDroppedAtOnce = 4 << 20;
    const sf_count_t end = std::min(source_.position, SizeOf(&source_));
    if (!mapped_ || end - dropped_ < kDroppedAtOnce) return;
    MappedFile::DropPages(mapped_->bytes().subspan(
        static_cast<size_t>(dropped_), static_cast<size_t>(end - dropped_)));
    dropped_ = end;
  }

  // Makes mixed_ the means of the block's frames.
  absl::Status MixDown(sf_count_t num_frames) {
    mixed_.clear();
    for (sf_count_t frame = 0; frame < num_frames; ++frame) {
      const float mean = MeanOfFrame(frame);
      if (!std::isfinite(mean)) {
        return failure_ = InvalidArgument(name_, " has a sample that is ", mean,
                                          " after ", SecondsRead(), " s");
      }
      mixed_.push_back(mean);
      ++num_frames_read_;
    }
    return absl::OkStatus();
  }

  float MeanOfFrame(sf_count_t frame) const {
    const int num_channels = format_.num_channels;
    const float* values = block_.data() + frame * num_channels;
    if (num_channels == 1) return values[0];
    double sum = 0;
    for (int channel = 0; channel < num_channels; ++channel) {
      sum += values[channel];
    }
    return static_cast<float>(sum / num_channels);
  }

  double SecondsRead() const {
    return static_cast<double>(num_frames_read_) / format_.sample_rate;
  }

  // Constant after Start.
  const std::string name_;
  std::optional<MappedFile> mapped_;
  AudioFormat format_;
  int frames_in_block_ = 0;

  ByteSource source_;
  sf_count_t dropped_ = 0;  // position up to which memory was given back
  Sndfile file_;
  std::vector<float> block_;  // [frames_in_block_, channels]
  std::vector<float> mixed_;
  std::optional<Resampler> resampler_;
  std::vector<float> ready_;  // resampled; from next_ on not yet read
  size_t next_ = 0;
  int64_t num_frames_read_ = 0;
  bool ended_ = false;
  absl::Status failure_;
};

class SampleReader : public AudioReader {
 public:
  SampleReader(std::shared_ptr<const std::vector<float>> samples,
               std::string name)
      : name_(std::move(name)),
        format_{.name = "samples",
                .sample_rate = kSpeechRate,
                .num_channels = 1,
                .duration = static_cast<double>(samples->size()) / kSpeechRate},
        samples_(std::move(samples)) {}

  const std::string& name() const override { return name_; }
  const AudioFormat& format() const override { return format_; }
  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    const size_t count = std::min(samples.size(), samples_->size() - next_);
    std::copy_n(samples_->begin() + static_cast<ptrdiff_t>(next_), count,
                samples.begin());
    next_ += count;
    return count;
  }

 private:
  const std::string name_;
  const AudioFormat format_;
  const std::shared_ptr<const std::vector<float>> samples_;
  size_t next_ = 0;
};

absl::StatusOr<std::unique_ptr<AudioReader>> Started(
    std::unique_ptr<SndfileReader> reader) {
  RETURN_IF_ERROR(reader->Start());
  return std::unique_ptr<AudioReader>(std::move(reader));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AudioReader>> AudioReader::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return Started(std::make_unique<SndfileReader>(std::move(file), path));
}

absl::StatusOr<std::unique_ptr<AudioReader>> AudioReader::OpenBytes(
    std::string_view bytes, const std::string& name) {
  return Started(std::make_unique<SndfileReader>(bytes, name));
}

std::unique_ptr<AudioReader> AudioReader::OpenSamples(
    std::shared_ptr<const std::vector<float>> samples,
    const std::string& name) {
  return std::make_unique<SampleReader>(std::move(samples), name);
}

absl::StatusOr<std::vector<float>> ReadAllAudio(AudioReader& reader,
                                                absl::Duration max_duration) {
  // A sample more shows that there is more.
  const double limit = absl::ToDoubleSeconds(max_duration) * kSpeechRate;
  const size_t max_samples =
      limit < 1e15 ? static_cast<size_t>(std::max(limit, 0.0)) : size_t(1e15);
  std::vector<float> samples;
  while (true) {
    const size_t before = samples.size();
    samples.resize(std::min(before + 4 * kBlockSize, max_samples + 1));
    ASSIGN_OR_RETURN(const size_t count,
                     reader.Read(std::span(samples).subspan(before)));
    samples.resize(before + count);
    if (samples.size() > max_samples) {
      return InvalidArgument(reader.name(), " is longer than ",
                             absl::FormatDuration(max_duration));
    }
    if (count == 0) return samples;
  }
}

}  // namespace espalier
