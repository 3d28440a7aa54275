#include "serve/speech_answer.h"

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/json.h"
#include "base/status.h"
#include "serve/speech_metrics.h"
#include "speech/transcript_formats.h"
#include "speech/transcript_json.h"
#include "text/tokenizer/language_names.h"

namespace espalier::serve {
namespace {

std::string EventOf(const json::object& event) {
  return Concat("data: ", WriteJson(event), "\n\n");
}

json::object UsageOf(const Transcript& transcript) {
  return {{"type", "duration"}, {"seconds", transcript.duration}};
}

// "english", as OpenAI's API names it; the code if it has no name.
std::string LanguageName(const std::string& code) {
  const std::string_view name = EnglishNameOf(code);
  if (name.empty()) return code;
  return absl::AsciiStrToLower(ToAbsl(name));
}

// Returns the words of all segments without the space before them, as OpenAI's
// API has them.
json::array WordsOf(const json::array& segments) {
  json::array words;
  for (const json::value& segment : segments) {
    for (const json::value& word : segment.at("words").as_array()) {
      words.push_back(word);
      json::object& added = words.back().as_object();
      added["word"] = json::string(StripSpace(added["word"].as_string()));
    }
  }
  return words;
}

std::string WriteVerbose(const Transcript& transcript, const SpeechCall& call) {
  json::object answer = ToJson(transcript);
  answer["task"] =
      call.options.task == SpeechTask::kTranslate ? "translate" : "transcribe";
  answer["language"] = LanguageName(transcript.language);
  for (size_t i = 0; i < transcript.segments.size(); ++i) {
    const std::string& language = transcript.segments[i].language;
    if (language.empty()) continue;
    answer["segments"].at(i).as_object()["language"] = LanguageName(language);
  }
  answer["text"] = StripSpace(transcript.text);
  if (call.has_words) {
    answer["words"] = WordsOf(answer["segments"].as_array());
  }
  if (!call.has_segments) answer.erase("segments");
  answer["usage"] = UsageOf(transcript);
  answer["espalier"] = {
      {"windows", std::ssize(transcript.windows)},
      {"fallbacks",
       NumFallbacks(transcript, call.options.temperature.front())}};
  return WriteJson(answer);
}

}  // namespace

std::string_view ContentTypeOf(SpeechFormat format) {
  switch (format) {
    case SpeechFormat::kJson:
    case SpeechFormat::kVerboseJson:
      break;
    case SpeechFormat::kText:
    case SpeechFormat::kSrt:
      return "text/plain; charset=utf-8";
    case SpeechFormat::kVtt:
      return "text/vtt; charset=utf-8";
  }
  return "application/json";
}

std::string WriteSpeech(const Transcript& transcript, const SpeechCall& call) {
  switch (call.format) {
    case SpeechFormat::kJson:
      break;
    case SpeechFormat::kText:
      return Concat(StripSpace(transcript.text), "\n");
    case SpeechFormat::kSrt:
      return FormatTranscript(transcript, TranscriptFormat::kSrt,
                              call.subtitles);
    case SpeechFormat::kVtt:
      return FormatTranscript(transcript, TranscriptFormat::kVtt,
                              call.subtitles);
    case SpeechFormat::kVerboseJson:
      return WriteVerbose(transcript, call);
  }
  return WriteJson(json::object{{"text", StripSpace(transcript.text)},
                                {"usage", UsageOf(transcript)}});
}

std::string SpeechDeltas::Add(const TranscriptSegment& segment) {
  text_ += segment.text;
  const std::string_view text = StripSpace(text_);
  if (text.size() <= num_sent_) return "";
  const std::string_view delta =
      text.substr(std::exchange(num_sent_, text.size()));
  json::object sent = {
      {"id", segment.id}, {"start", segment.start}, {"end", segment.end}};
  if (!segment.language.empty()) {
    sent["language"] = LanguageName(segment.language);
  }
  if (segment.words) {
    const json::object whole = ToJson(segment);
    for (const char* const field : {"start", "end", "words"}) {
      sent[field] = whole.at(field);
    }
  }
  return EventOf({{"type", "transcript.text.delta"},
                  {"delta", delta},
                  {"segment", std::move(sent)}});
}

std::string WriteSpeechDone(const Transcript& transcript) {
  return EventOf({{"type", "transcript.text.done"},
                  {"text", StripSpace(transcript.text)},
                  {"usage", UsageOf(transcript)}});
}

}  // namespace espalier::serve
