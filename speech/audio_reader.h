// AudioReader: a file of audio as what speech models hear, mono samples at 16
// kHz in [-1, 1], run by run, so that hours of audio take no more memory than
// seconds.
//
// It reads what libsndfile does: WAV, FLAC, Ogg with Vorbis or Opus, MP3, AIFF
// and others, with 1000 to 768,000 samples a second. Several channels are mixed
// down to their mean, then resampled (resampler.h). Samples beyond [-1, 1],
// which files of floats and lossy formats may have, are clipped. A WAV file
// whose header promises more than follows, as of a writer that was stopped or
// wrote into a pipe, is read to its end.
//
//   ASSIGN_OR_RETURN(const std::unique_ptr<AudioReader> reader,
//                    AudioReader::Open("talk.flac"));
//   ASSIGN_OR_RETURN(const std::vector<float> samples,
//                    ReadAllAudio(*reader, absl::Hours(4)));
//
// Files are untrusted input. Thread safety: one thread at a time; readers are
// independent of each other, but files are opened one after another in the
// whole process: a mutex is held while libsndfile opens one, however long that
// takes.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace espalier {

// Samples a second that speech models hear.
inline constexpr int kSpeechRate = 16000;

// The description in a file's header.
struct AudioFormat {
  std::string name;     // "WAV (Microsoft)", "FLAC (Free Lossless Audio Codec)"
  int sample_rate = 0;  // Hz
  int num_channels = 0;  // at least 1
  // Seconds, to show progress: what is read may differ. 0: the header does not
  // have it, as of a stream.
  double duration = 0;
};

class AudioReader {
 public:
  static constexpr int kMinRate = 1000;
  static constexpr int kMaxRate = 768'000;

  // Reads the file at `path`, which must not be truncated meanwhile.
  // Errors, naming the file: kNotFound, kFailedPrecondition and
  // kInvalidArgument as MappedFile::Open, and kInvalidArgument if it is empty,
  // of no format that libsndfile reads, or of a sample rate out of range.
  static absl::StatusOr<std::unique_ptr<AudioReader>> Open(
      const std::string& path);

  // Reads `bytes`, the content of a file, which live as long as the reader;
  // `name` names them in errors. Errors: as above.
  static absl::StatusOr<std::unique_ptr<AudioReader>> OpenBytes(
      std::string_view bytes, const std::string& name);

  // Reads `samples`, which are mono and at 16 kHz; `name` names them in errors.
  static std::unique_ptr<AudioReader> OpenSamples(
      std::shared_ptr<const std::vector<float>> samples,
      const std::string& name);

  virtual ~AudioReader() = default;

  // The path or name that names the file in errors.
  virtual const std::string& name() const = 0;
  virtual const AudioFormat& format() const = 0;

  // Writes the next samples to the beginning of `samples` and returns how many:
  // all that fit, but at the end of the audio, where there are fewer. Errors:
  // kInvalidArgument, naming the file and the time reached, if it cannot be
  // decoded or has a sample that is NaN or infinite; from then on the reader
  // fails.
  virtual absl::StatusOr<size_t> Read(std::span<float> samples) = 0;
};

// Opens an audio at its beginning. Where it is called twice, both readers read
// the same.
using OpenAudio = std::function<absl::StatusOr<std::unique_ptr<AudioReader>>()>;

// Returns all that is left to read, at most `max_duration` of it.
// Errors: those of Read; kInvalidArgument, naming the file, if it is longer.
absl::StatusOr<std::vector<float>> ReadAllAudio(AudioReader& reader,
                                                absl::Duration max_duration);

}  // namespace espalier
