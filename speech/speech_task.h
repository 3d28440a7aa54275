// SpeechTask: what becomes of speech.
#pragma once

#include <cstdint>

namespace espalier {

enum class SpeechTask : uint8_t {
  kTranscribe,  // into the language that is spoken
  kTranslate,   // into English
};

}  // namespace espalier
