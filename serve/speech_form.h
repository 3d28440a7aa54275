// SpeechForm: the form of a call to /v1/audio/transcriptions or
// /v1/audio/translations, read as its bytes arrive. Fields are OpenAI's, and
// those of TranscribeOptions by faster-whisper's names and ours
// (docs/server.md has the table). A field that is unknown, not supported or
// given twice is refused by its name; none is ignored.
//
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "espalier/transcriber.h"
#include "http/multipart.h"
#include "openai/limits.h"
#include "speech/subtitle_lines.h"

namespace espalier::serve {

enum class SpeechFormat : uint8_t { kJson, kText, kSrt, kVtt, kVerboseJson };

// A field of a form: its values, several of a list, and the name that the form
// has for it, "beam_size" of num_beams.
struct SpeechField {
  std::string field;  // in the table of fields
  std::string given;
  std::vector<std::string> values = {};
};

struct SpeechCall {
  std::string audio = {};  // the content of the file
  std::string model = {};  // empty: none was named
  SpeechFormat format = SpeechFormat::kJson;
  bool stream = false;
  bool has_segments = true;  // in verbose_json
  bool has_words = false;    // there; with options.word_timestamps
  std::optional<int64_t> deadline_ms = {};  // from the call's beginning
  bool vad_filter = false;  // options.voice_activity is the server's
  TranscribeOptions options = {};
  SubtitleOptions subtitles = {};
  std::vector<SpeechField> given = {};

  // Returns an error of Transcriber::Check with the name that the form has for
  // its field.
  absl::Status InWordsOfForm(const absl::Status& error) const;
};

// Chunks of a call that are transcribed at a time: a thread each.
inline constexpr int64_t kMaxSpeechBatch = 8;

// Bytes of all fields but the file.
inline constexpr int64_t kMaxSpeechFieldBytes = 64 << 10;

class SpeechForm : public http::FormHandler {
 public:
  //   expected_bytes  some more than the file has, or 0
  SpeechForm(std::string_view boundary, int64_t max_audio_bytes,
             int64_t expected_bytes);

  // Errors: kInvalidArgument naming the field and what is wrong with it.
  absl::Status Read(std::string_view bytes) { return reader_.Read(bytes); }
  // Returns the call, of all bytes. Once. Defaults of num_beams and best_of are
  // lowered to `max_sequences`, which a step of the engine has room for.
  // Errors: as Read; values are checked for their types and `limits` alone.
  absl::StatusOr<SpeechCall> Take(SpeechTask task, const openai::Limits& limits,
                                  int64_t max_sequences);

  absl::Status BeginField(std::string_view name,
                          std::string_view filename) override;
  absl::Status AddToField(std::string_view bytes) override;

 private:
  const int64_t max_audio_bytes_;
  const int64_t expected_bytes_;
  http::MultipartReader reader_;
  int64_t num_field_bytes_ = 0;
  std::optional<std::string> audio_;
  std::vector<SpeechField> fields_;
  SpeechField* reading_ = nullptr;  // in fields_; null in the file
};

}  // namespace espalier::serve
