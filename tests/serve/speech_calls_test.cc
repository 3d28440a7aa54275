// Transcriptions over HTTP: answers are those of Transcriber in every format,
// alone and beside others; forms that are wrong are refused by the name of
// their field.
#include "serve/speech_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "espalier/transcriber.h"
#include "speech/transcript_json.h"
#include "tests/few_cases.h"
#include "tests/scratch_directory.h"
#include "tests/serve/server_fixture.h"
#include "tests/source_tree.h"
#include "tests/speech/signals.h"
#include "tests/speech/tone_network.h"
#include "tests/speech/wav_file.h"
#include "tests/whisper_directory.h"
#include "text/tokenizer/language_names.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::Noise;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::SmallWhisper;
using ::espalier::testing::WhisperDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::string_view kTranscriptions = "/v1/audio/transcriptions";
constexpr std::string_view kTranslations = "/v1/audio/translations";

// A field of a form: name, value.
using Field = std::pair<std::string, std::string>;
using Fields = std::vector<Field>;

std::string FormOf(const Fields& fields) {
  std::string form;
  for (const auto& [name, value] : fields) {
    const std::string_view filename =
        name == "file" ? "; filename=\"a.wav\"" : "";
    form += Concat("--b\r\nContent-Disposition: form-data; name=\"", name, "\"",
                   filename, "\r\n\r\n", value, "\r\n");
  }
  return form + "--b--\r\n";
}

// A tone that changes every second, in noise, as the bytes of a WAV file.
std::string Speech(double seconds, int seed = 1) {
  std::vector<float> samples =
      Noise(static_cast<int>(seconds * kSpeechRate), 0.02F);
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t tone = (i / kSpeechRate * 7 + seed) % 9;
    samples[i] += static_cast<float>(
        0.3 * std::sin(2 * 3.14159 * 150 * (1.0 + tone) * i / kSpeechRate));
  }
  WavHeader header;
  header.data_bytes = static_cast<uint32_t>(2 * samples.size());
  std::string bytes = WavHeaderBytes(header);
  for (const float sample : samples) {
    AppendBytes(static_cast<int16_t>(sample * 32767), bytes);
  }
  return bytes;
}

// Times as a list, 10 ms apart.
std::string Clips(int number) {
  std::string list;
  for (int i = 0; i < number; ++i) list += Concat(i > 0 ? "," : "", 0.01 * i);
  return list;
}

class SpeechCallsTest : public ServerFixture {
 protected:
  void Serve(ServerOptions options = {}, const SmallWhisper& shape = {}) {
    directory_ = std::make_unique<WhisperDirectory>(shape);
    Listen(std::move(options));
    ServeDirectory();
  }
  void ServeDirectory(const GeneratorOptions& options = {.num_threads = 1}) {
    absl::StatusOr<Generator> generator =
        Generator::Load(directory_->path(), options);
    ASSERT_OK(generator);
    ASSERT_OK(server_->Serve(*std::move(generator), directory_->path()));
  }
  absl::StatusOr<Generator> Load() const {
    return Generator::Load(directory_->path(), {.num_threads = 1});
  }
  // Runs a program of tests/serve/ with the server's address and three seconds
  // of audio, and expects that it ends well.
  void ExpectServes(std::string_view program, std::string_view what_lacks) {
    const std::string audio = directory_->files().Write("talk.wav", Speech(3));
    const std::string command =
        Concat("python3 -B '", SourcePath(Concat("tests/serve/", program)),
               "' ", server_->url(), " '", audio, "'");
    const int status = std::system(command.c_str());
    ASSERT_TRUE(WIFEXITED(status));
    constexpr int kSkipped = 77;
    constexpr int kNoProgram = 127;
    if (WEXITSTATUS(status) == kSkipped || WEXITSTATUS(status) == kNoProgram) {
      GTEST_SKIP() << what_lacks;
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  // Returns the transcript that the model makes without a server.
  Transcript Heard(const std::string& bytes,
                   const TranscribeOptions& options = {}) const {
    auto transcriber =
        Transcriber::Load(directory_->path(), {.num_threads = 1});
    EXPECT_OK(transcriber);
    auto transcript = transcriber->Transcribe(
        [&] { return AudioReader::OpenBytes(bytes, "file"); }, options);
    EXPECT_OK(transcript);
    return *std::move(transcript);
  }

  static std::string FormText(std::string_view path, const Fields& fields,
                              std::string_view headers = "") {
    const std::string form = FormOf(fields);
    return Concat("POST ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                  "Content-Type: multipart/form-data; boundary=b\r\n",
                  "Content-Length: ", form.size(), "\r\n", headers, "\r\n",
                  form);
  }
  RawResponse PostForm(const Fields& fields,
                       std::string_view path = kTranscriptions) {
    RawClient client = Connect();
    // Under a sanitizer a transcription takes longer than ten seconds.
    constexpr timeval kPatience = {.tv_sec = 120, .tv_usec = 0};
    setsockopt(client.fd(), SOL_SOCKET, SO_RCVTIMEO, &kPatience,
               sizeof kPatience);
    client.Send(FormText(path, fields));
    return client.Receive();
  }
  std::string BodyOf(const Fields& fields,
                     std::string_view path = kTranscriptions) {
    const RawResponse response = PostForm(fields, path);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.body;
  }
  json::object JsonOf(const Fields& fields,
                      std::string_view path = kTranscriptions) {
    return ParseJson(BodyOf(fields, path)).value().as_object();
  }
  // Read once more, since numbers that were may differ in their last digit.
  static std::string SegmentsOf(const json::object& transcript) {
    return WriteJson(ParseJson(WriteJson(transcript.at("segments"))).value());
  }
  // Checks the status, the field and a part of the message of an error.
  void ExpectRefused(const Fields& fields, std::string_view param,
                     const std::string& message,
                     std::string_view path = kTranscriptions) {
    const RawResponse response = PostForm(fields, path);
    EXPECT_EQ(response.status, 400) << response.body;
    const json::value error = ParseJson(response.body).value().at("error");
    EXPECT_EQ(error.at("param"), json::value(param)) << response.body;
    EXPECT_THAT(std::string(error.at("message").as_string()),
                HasSubstr(message));
  }

  // The fields of a call that takes far longer than a test: each of its windows
  // is decoded at all temperatures.
  static Fields Long(Fields fields = {}) {
    std::string temperatures = "0";
    for (int i = 0; i < 60; ++i) temperatures += ",1";
    fields.insert(fields.end(), {{"file", Speech(60)},
                                 {"temperatures", temperatures},
                                 {"compression_ratio_threshold", "0"},
                                 {"no_speech_threshold", "None"},
                                 {"num_beams", "20"},
                                 {"best_of", "20"}});
    return fields;
  }
  // A sample of /metrics that has no labels.
  double Count(std::string_view name) {
    const std::string text =
        Get("/metrics", "Authorization: Bearer key-of-a\r\n").body;
    const size_t at = text.find(Concat("\nespalier:", name, " "));
    return at == text.npos ? -1 : std::stod(text.substr(text.find(' ', at)));
  }
  // Waits until it is that; false after ten seconds.
  bool AwaitCount(std::string_view name, double value) {
    for (int i = 0; i < 2'000; ++i) {
      if (Count(name) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::unique_ptr<WhisperDirectory> directory_;
};

const json::object kUsage = {{"type", "duration"}, {"seconds", 3.5}};

TEST_F(SpeechCallsTest, EachFormatIsWhatTheWritersMakeOfTheTranscript) {
  Serve();
  const std::string audio = Speech(3.5);
  const Transcript heard = Heard(audio, {.temperature = {0}});
  ASSERT_THAT(heard.segments, Not(IsEmpty()));
  const std::string text(StripSpace(heard.text));
  const auto in = [&](const std::string& format) -> Fields {
    return {{"response_format", format},
            {"file", audio},
            {"model", "toy"},
            {"temperatures", "0"}};
  };
  EXPECT_EQ(BodyOf({{"file", audio}, {"temperatures", "0"}}),
            WriteJson(json::object{{"text", text}, {"usage", kUsage}}));
  EXPECT_EQ(BodyOf(in("json")),
            BodyOf({{"file", audio}, {"temperatures", "0"}}));
  EXPECT_EQ(BodyOf(in("text")), text + "\n");
  EXPECT_EQ(BodyOf(in("srt")), FormatTranscript(heard, TranscriptFormat::kSrt));
  EXPECT_EQ(BodyOf(in("vtt")), FormatTranscript(heard, TranscriptFormat::kVtt));
  const json::object verbose = JsonOf(in("verbose_json"));
  EXPECT_EQ(SegmentsOf(verbose), SegmentsOf(ToJson(heard)));
  EXPECT_EQ(verbose.at("text"), json::value(text));
  EXPECT_EQ(verbose.at("duration"), json::value(3.5));
  EXPECT_EQ(verbose.at("usage"), json::value(kUsage));
  EXPECT_EQ(verbose.at("task"), "transcribe");
  EXPECT_EQ(verbose.at("language_probability"),
            json::value(heard.language_probability));
  EXPECT_EQ(verbose.at("espalier").at("windows").to_number<size_t>(),
            heard.windows.size());
  const RawResponse srt = PostForm(in("srt"));
  EXPECT_EQ(srt.Find("content-type"), "text/plain; charset=utf-8");
}

TEST_F(SpeechCallsTest, WordsAreThoseOfItsSegments) {
  Serve();
  const std::string audio = Speech(2.5);
  const TranscribeOptions options = {.temperature = {0},
                                     .word_timestamps = true};
  const Transcript heard = Heard(audio, options);
  const auto hundredths = [](double seconds) {
    return std::nearbyint(seconds * 100) / 100;
  };
  json::array words;
  for (const TranscriptSegment& segment : heard.segments) {
    for (const TranscriptWord& word : *segment.words) {
      words.push_back(json::object{{"word", StripSpace(word.word)},
                                   {"start", hundredths(word.start)},
                                   {"end", hundredths(word.end)},
                                   {"probability", word.probability}});
    }
  }
  EXPECT_THAT(words, Not(IsEmpty()));
  const Fields verbose = {{"response_format", "verbose_json"},
                          {"file", audio},
                          {"temperatures", "0"}};
  const auto with = [&](Fields more) {
    more.insert(more.end(), verbose.begin(), verbose.end());
    return JsonOf(more);
  };
  const json::object alone = with({{"timestamp_granularities[]", "word"}});
  EXPECT_EQ(alone.at("words"), json::value(words));
  EXPECT_FALSE(alone.contains("segments"));
  const json::object both = with({{"timestamp_granularities[]", "word"},
                                  {"timestamp_granularities[]", "segment"}});
  EXPECT_EQ(both.at("words"), json::value(words));
  EXPECT_EQ(SegmentsOf(both), SegmentsOf(ToJson(heard)));
  const json::object segments = with({{"word_timestamps", "true"}});
  EXPECT_FALSE(segments.contains("words"));
  EXPECT_EQ(SegmentsOf(segments), SegmentsOf(ToJson(heard)));
  EXPECT_EQ(BodyOf({{"response_format", "srt"},
                    {"file", audio},
                    {"temperatures", "0"},
                    {"word_timestamps", "true"}}),
            FormatTranscript(heard, TranscriptFormat::kSrt));
  EXPECT_EQ(BodyOf({{"response_format", "vtt"},
                    {"file", audio},
                    {"temperatures", "0"},
                    {"word_timestamps", "true"},
                    {"highlight_words", "true"},
                    {"max_line_width", "12"},
                    {"max_line_count", "2"}}),
            FormatTranscript(heard, TranscriptFormat::kVtt,
                             {.max_line_width = 12,
                              .max_line_count = 2,
                              .highlight_words = true}));
  EXPECT_EQ(BodyOf({{"response_format", "srt"},
                    {"file", audio},
                    {"temperatures", "0"},
                    {"word_timestamps", "true"},
                    {"max_words_per_line", "2"}}),
            FormatTranscript(heard, TranscriptFormat::kSrt,
                             {.max_words_per_line = 2}));
}

TEST_F(SpeechCallsTest, DeltasOfAStreamAreItsText) {
  Serve();
  const std::string audio = Speech(4.2);
  const Transcript heard = Heard(audio, {.temperature = {0}});
  const std::string body =
      BodyOf({{"file", audio}, {"stream", "true"}, {"temperatures", "0"}});
  const Events events = ReadEvents(body);
  ASSERT_GE(events.all.size(), 2u);
  std::string text;
  for (size_t i = 0; i + 1 < events.all.size(); ++i) {
    const json::value& event = events.all[i];
    EXPECT_EQ(event.at("type"), "transcript.text.delta");
    EXPECT_FALSE(event.at("delta").as_string().empty());
    text += event.at("delta").as_string().c_str();
  }
  const json::value& done = events.all.back();
  EXPECT_EQ(done.at("type"), "transcript.text.done");
  EXPECT_EQ(done.at("text"), json::value(text));
  EXPECT_EQ(text, StripSpace(heard.text));
  EXPECT_EQ(done.at("usage").at("seconds"), json::value(4.2));
}

TEST_F(SpeechCallsTest, SegmentsOfAStreamMayHaveWords) {
  Serve();
  const std::string audio = Speech(4.2);
  const json::object heard =
      ToJson(Heard(audio, {.temperature = {0}, .word_timestamps = true}));
  const Events events = ReadEvents(BodyOf({{"file", audio},
                                           {"stream", "true"},
                                           {"word_timestamps", "true"},
                                           {"temperatures", "0"}}));
  const json::array& segments = heard.at("segments").as_array();
  ASSERT_THAT(segments, Not(IsEmpty()));
  ASSERT_EQ(events.all.size(), segments.size() + 1);
  for (size_t i = 0; i < segments.size(); ++i) {
    const json::object& told = events.all[i].at("segment").as_object();
    EXPECT_EQ(told.at("id"), i);
    for (const char* const field : {"start", "end", "words"}) {
      EXPECT_EQ(told.at(field), segments[i].at(field)) << field;
    }
    std::string text;
    for (const json::value& word : told.at("words").as_array()) {
      text += word.at("word").as_string().c_str();
    }
    EXPECT_THAT(text, Not(IsEmpty()));
    EXPECT_EQ(StripSpace(events.all[i].at("delta").as_string().c_str()),
              StripSpace(text));
  }
}

TEST_F(SpeechCallsTest, EachFieldReachesItsOption) {
  Serve();
  const std::string audio = Speech(testing::Cases(2.3, 1.1));
  // Each changes what Transcriber hears, or is checked by it.
  const std::pair<Fields, TranscribeOptions> cases[] = {
      {{{"language", "de"}}, {.language = "de"}},
      {{{"language", "German"}}, {.language = "German"}},
      {{{"prompt", "the talk"}}, {.initial_prompt = "the talk"}},
      {{{"initial_prompt", "one"}, {"carry_initial_prompt", "True"}},
       {.initial_prompt = "one", .carry_initial_prompt = true}},
      {{{"hotwords", "the"}}, {.hotwords = "the"}},
      {{{"prefix", "and"}}, {.prefix = "and"}},
      {{{"temperature", "0.7"}, {"seed", "5"}, {"best_of", "2"}},
       {.temperature = {0.7}, .best_of = 2, .seed = 5}},
      {{{"temperature", "0"}}, {}},
      {{{"temperatures", "0,0.5"}, {"log_prob_threshold", "-0.01"}},
       {.temperature = {0, 0.5}, .thresholds = {.logprob = -0.01}}},
      {{{"temperatures[]", "0"},
        {"temperatures[]", "0.9"},
        {"compression_ratio_threshold", "0.1"},
        {"no_speech_threshold", "None"}},
       {.temperature = {0, 0.9},
        .thresholds = {.compression_ratio = 0.1, .no_speech = std::nullopt}}},
      {{{"beam_size", "2"}, {"patience", "2"}, {"length_penalty", "0.3"}},
       {.num_beams = 2, .patience = 2, .length_penalty = 0.3}},
      {{{"num_beams", "1"}, {"suppress_tokens", "-1, 7"}},
       {.num_beams = 1, .suppress_tokens = {-1, 7}}},
      {{{"suppress_tokens", "[]"}, {"suppress_blank", "false"}},
       {.suppress_tokens = {}, .suppress_blank = false}},
      {{{"without_timestamps", "true"}, {"max_new_tokens", "4"}},
       {.max_new_tokens = 4, .without_timestamps = true}},
      {{{"max_initial_timestamp", "0.1"}}, {.max_initial_timestamp = 0.1}},
      {{{"max_initial_timestamp", "none"}},
       {.max_initial_timestamp = std::nullopt}},
      {{{"clip_timestamps", "0.5,1.5"}}, {.clip_timestamps = {0.5, 1.5}}},
      {{{"condition_on_previous_text", "false"},
        {"prompt_reset_on_temperature", "0.1"}},
       {.condition_on_previous_text = false,
        .prompt_reset_on_temperature = 0.1}},
      {{{"language_detection_threshold", "1"},
        {"language_detection_segments", "2"}},
       {.language_detection_threshold = 1, .language_detection_segments = 2}},
      {{{"num_alternatives", "3"}}, {.num_alternatives = 3}},
      {{{"timestamp_granularities[]", "segment"}}, {}},
      {{{"timestamp_granularities", "segment"}}, {}},
      {{{"timestamp_granularities", "segment"},
        {"timestamp_granularities", "word"}},
       {.word_timestamps = true}},
      {{{"word_timestamps", "true"},
        {"prepend_punctuations", "("},
        {"append_punctuations", ""},
        {"hallucination_silence_threshold", "0.25"}},
       {.word_timestamps = true,
        .prepend_punctuations = "(",
        .append_punctuations = "",
        .hallucination_silence_threshold = 0.25}},
      {{{"chunking_strategy", "auto"}, {"vad_filter", "false"}}, {}},
  };
  std::set<std::string> answers;
  for (auto [fields, options] : cases) {
    fields.emplace_back("response_format", "verbose_json");
    fields.emplace_back("file", audio);
    const json::object answer = JsonOf(fields);
    const json::object heard = ToJson(Heard(audio, options));
    EXPECT_EQ(SegmentsOf(answer), SegmentsOf(heard)) << fields[0].first;
    EXPECT_EQ(answer.contains("windows"), heard.contains("windows"));
    answers.insert(SegmentsOf(answer));
  }
  EXPECT_GE(answers.size(), testing::Cases(15u, 8u));
}

TEST_F(SpeechCallsTest, SegmentsTellTheirLanguagesWhereEachWindowHasItsOwn) {
  Serve();
  const std::string audio = Speech(4.5);
  const Transcript heard = Heard(audio, {.temperature = {0},
                                         .language_detection_threshold = 0.1,
                                         .multilingual = true});
  const Fields fields = {{"file", audio},
                         {"temperatures", "0"},
                         {"multilingual", "True"},
                         {"language_detection_threshold", "0.1"}};
  Fields verbose = fields;
  verbose.emplace_back("response_format", "verbose_json");
  const json::object answer = JsonOf(verbose);
  Fields stream = fields;
  stream.emplace_back("stream", "true");
  const Events events = ReadEvents(BodyOf(stream));
  std::set<std::string> languages;
  const json::array& segments = answer.at("segments").as_array();
  ASSERT_EQ(segments.size(), heard.segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_EQ(segments[i].at("text"), json::value(heard.segments[i].text));
    const std::string name = absl::AsciiStrToLower(
        ToAbsl(EnglishNameOf(heard.segments[i].language)));
    EXPECT_EQ(segments[i].at("language"), json::value(name));
    languages.insert(name);
    if (i + 1 < events.all.size()) {
      const json::value& sent = events.all[i].at("segment");
      EXPECT_EQ(sent.at("language"),
                segments.at(sent.at("id").as_int64()).at("language"));
    }
  }
  EXPECT_GE(languages.size(), 2u);
  verbose[2].second = "false";
  EXPECT_THAT(WriteJson(JsonOf(verbose).at("segments")),
              Not(HasSubstr("\"language\"")));
}

TEST_F(SpeechCallsTest, TranslationsAreIntoEnglish) {
  Serve();
  const std::string audio = Speech(1.8);
  const json::object answer = JsonOf(
      {{"file", audio}, {"response_format", "verbose_json"}}, kTranslations);
  EXPECT_EQ(answer.at("task"), "translate");
  EXPECT_EQ(SegmentsOf(answer),
            SegmentsOf(ToJson(Heard(audio, {.task = SpeechTask::kTranslate}))));
}

TEST_F(SpeechCallsTest, EnglishModelsDoNotTranslate) {
  Serve({}, {.is_multilingual = false});
  const std::string audio = Speech(1);
  ExpectRefused({{"file", audio}}, "model", "must be multilingual to translate",
                kTranslations);
  ExpectRefused({{"file", audio}, {"multilingual", "true"}}, "multilingual",
                "multilingual must be false for an English model, got true");
  const json::object answer =
      JsonOf({{"file", audio}, {"response_format", "verbose_json"}});
  EXPECT_EQ(answer.at("language"), "english");
}

TEST_F(SpeechCallsTest, WrongFieldsAreRefusedByName) {
  Serve();
  const std::string audio = Speech(1);
  struct Case {
    Fields fields;
    std::string param;
    std::string message;
  };
  std::string many = "1";
  for (int i = 0; i < 100; ++i) many += ",1";
  const Case cases[] = {
      {{{"language", "xx"}}, "language", "xx"},
      {{{"temperatures", many}}, "temperatures", "at most 100 numbers"},
      {{{"response_format", "tsv"}}, "response_format", "got \"tsv\""},
      {{{"temperature", "warm"}}, "temperature", "a number, got \"warm\""},
      {{{"temperature", "nan"}}, "temperature", "must be a number"},
      {{{"temperature", "101"}}, "temperature", "[0, 100], got 101"},
      {{{"temperatures", "0,,1"}}, "temperatures", "must be a number"},
      {{{"temperatures", "-1"}}, "temperatures", "temperatures must be in"},
      {{{"temperature", "0"}, {"temperatures", "0"}},
       "temperatures",
       "exclude each other"},
      {{{"beam_size", "0"}}, "beam_size", "beam_size must be in [1, 1000]"},
      {{{"num_beams", "2.5"}}, "num_beams", "an integer, got \"2.5\""},
      {{{"num_beams", "2"}, {"beam_size", "2"}},
       "beam_size",
       "beam_size and num_beams are one field"},
      {{{"seed", "-1"}}, "seed", "at least 0"},
      {{{"seed", "1"}, {"seed", "1"}}, "seed", "given twice"},
      {{{"stream", "yes"}}, "stream", "true or false"},
      {{{"stream", "true"}, {"response_format", "srt"}},
       "response_format",
       "of a stream must be json or text"},
      {{{"timestamp_granularities[]", "letter"},
        {"response_format", "verbose_json"}},
       "timestamp_granularities[]",
       "must be segment or word"},
      {{{"timestamp_granularities[]", "word"}},
       "timestamp_granularities[]",
       "needs response_format verbose_json"},
      {{{"timestamp_granularities", "segment"}},
       "timestamp_granularities",
       "needs response_format verbose_json"},
      {{{"num_alternatives", "2"}}, "num_alternatives", "verbose_json"},
      {{{"include[]", "logprobs"}}, "include[]", "not supported"},
      {{{"chunking_strategy", "server_vad"}},
       "chunking_strategy",
       "must be auto"},
      {{{"word_timestamps", "true"}},
       "word_timestamps",
       "needs stream true or response_format verbose_json, srt or vtt"},
      {{{"timestamp_granularities[]", "word"},
        {"response_format", "verbose_json"},
        {"word_timestamps", "false"}},
       "word_timestamps",
       "must not be false with word in timestamp_granularities"},
      {{{"append_punctuations", "!"}},
       "append_punctuations",
       "needs word_timestamps"},
      {{{"hallucination_silence_threshold", "2"}},
       "hallucination_silence_threshold",
       "needs word_timestamps"},
      {{{"timestamp_granularities[]", "word"},
        {"response_format", "verbose_json"},
        {"max_new_tokens", "34"}},
       "max_new_tokens",
       "[1, 33]"},
      {{{"vad_filter", "true"}},
       "vad_filter",
       "must be false: the server has no --vad-model"},
      {{{"vad_threshold", "0.4"}},
       "vad_threshold",
       "vad_threshold needs vad_filter true"},
      {{{"batch_size", "2"}}, "batch_size", "needs vad_filter true"},
      {{{"batch_size", "9"}, {"vad_filter", "true"}},
       "batch_size",
       "must be in [1, 8], got 9"},
      {{{"vad_filter", "true"}, {"clip_timestamps", "0,1"}},
       "clip_timestamps",
       "clip_timestamps and vad_filter exclude each other"},
      {{{"vad_max_speech_duration_s", "nan"}, {"vad_filter", "true"}},
       "vad_max_speech_duration_s",
       "must be a number or inf, got \"nan\""},
      {{{"max_line_width", "42"}, {"response_format", "verbose_json"}},
       "max_line_width",
       "needs response_format srt or vtt"},
      {{{"highlight_words", "true"}, {"response_format", "srt"}},
       "highlight_words",
       "needs word_timestamps true"},
      {{{"max_line_count", "2"},
        {"word_timestamps", "true"},
        {"response_format", "srt"}},
       "max_line_count",
       "needs max_line_width"},
      {{{"max_words_per_line", "2"},
        {"max_line_count", "2"},
        {"max_line_width", "42"},
        {"word_timestamps", "true"},
        {"response_format", "srt"}},
       "max_words_per_line",
       "max_words_per_line and max_line_count exclude each other"},
      {{{"max_line_width", "10001"}},
       "max_line_width",
       "must be in [1, 10000], got 10001"},
      {{{"seed[]", "1"}}, "seed[]", "unknown field"},
      {{{"beam_sise", "1"}}, "beam_sise", "did you mean beam_size?"},
      {{{"suppress_tokens", "99999"}}, "suppress_tokens", "got 99999"},
      {{{"clip_timestamps", "3,1"}}, "clip_timestamps", "clip_timestamps"},
      {{{"clip_timestamps", Clips(961)}},
       "clip_timestamps",
       "at most 960 numbers (--max-audio-seconds), got 961"},
      {{{"deadline_ms", "0"}}, "deadline_ms", "got 0"},
      {{{"prompt", "\xff"}}, "prompt", "UTF-8"},
      {{{"prompt", std::string(70'000, 'a')}}, "prompt", "at most 65536 bytes"},
      {{{"file", audio}}, "file", "given once"},
  };
  for (auto [fields, param, message] : cases) {
    fields.emplace_back("file", audio);
    ExpectRefused(fields, param, message);
  }
}

// Words of the network are those of the command's options.
TEST_F(SpeechCallsTest, SpeechAloneIsTranscribedWhereACallAsksForIt) {
  const ScratchDirectory files;
  const auto network = LoadVoiceActivity(files.Write(
      "vad.safetensors", testing::SafetensorsOf(testing::ToneTensors())));
  ASSERT_OK(network.status());
  ServerOptions options;
  options.speech.voice_activity = *network;
  Serve(std::move(options));
  const std::string audio = Speech(5);
  TranscribeOptions heard = {.voice_activity = *network};
  heard.vad_options.threshold = 0.3;
  heard.vad_options.speech_pad_ms = 20;
  heard.vad_options.min_silence_duration_ms = 100;
  const Fields fields = {{"file", audio},
                         {"response_format", "verbose_json"},
                         {"vad_filter", "true"},
                         {"vad_threshold", "0.3"},
                         {"vad_max_speech_duration_s", "inf"},
                         {"vad_speech_pad_ms", "20"},
                         {"vad_min_silence_duration_ms", "100"}};
  const auto expect_same = [&](const json::object& answer) {
    const Transcript transcript = Heard(audio, heard);
    EXPECT_EQ(answer.at("text"), json::value(transcript.text));
    ASSERT_EQ(answer.at("segments").as_array().size(),
              transcript.segments.size());
    for (size_t i = 0; i < transcript.segments.size(); ++i) {
      EXPECT_EQ(answer.at("segments").at(i).at("start").to_number<double>(),
                transcript.segments[i].start);
    }
  };
  expect_same(JsonOf(fields));
  heard.batch_size = 1;
  heard.vad_options.max_speech_duration_s = 30;
  for (const char* const size : {"1", "4"}) {
    Fields batched = fields;
    batched.emplace_back("batch_size", size);
    expect_same(JsonOf(batched));
  }
  ExpectRefused({{"file", audio},
                 {"vad_filter", "true"},
                 {"batch_size", "2"},
                 {"vad_max_speech_duration_s", "60"},
                 {"vad_speech_pad_ms", "14501"}},
                "vad_speech_pad_ms",
                "vad_speech_pad_ms must be at most 14500 with batch_size, got "
                "14501");
  Fields wrong = fields;
  wrong.emplace_back("vad_neg_threshold", "0.9");
  ExpectRefused(wrong, "vad_neg_threshold",
                "vad_neg_threshold must be in [0, 0.3], got 0.9");
}

TEST_F(SpeechCallsTest, LimitsOfCallsHoldForTranscriptions) {
  ServerOptions options;
  options.requests.max_num_beams = 3;
  options.requests.max_n = 2;
  Serve(std::move(options));
  const std::string audio = Speech(1);
  ExpectRefused({{"file", audio}, {"beam_size", "4"}}, "beam_size",
                "beam_size must be at most 3 (--max-num-beams), got 4");
  ExpectRefused({{"file", audio}, {"best_of", "3"}}, "best_of", "(--max-n)");
  EXPECT_EQ(BodyOf({{"file", audio}, {"response_format", "srt"}}),
            FormatTranscript(Heard(audio, {.num_beams = 3, .best_of = 2}),
                             TranscriptFormat::kSrt));
}

TEST_F(SpeechCallsTest, DefaultsAreWhatAStepHasRoomFor) {
  directory_ = std::make_unique<WhisperDirectory>(SmallWhisper());
  Listen({});
  ServeDirectory({.num_threads = 1, .max_beams = 4});
  const json::value card = ParseJson(Get("/v1/models").body).value();
  const json::value& own = card.at("data").at(0).at("espalier");
  EXPECT_EQ(own.at("words"), true);
  EXPECT_EQ(own.at("translates"), true);
  EXPECT_EQ(own.at("max_num_beams"), 4);
  const std::string audio = Speech(1);
  EXPECT_EQ(BodyOf({{"file", audio}, {"response_format", "srt"}}),
            FormatTranscript(Heard(audio, {.num_beams = 4, .best_of = 4}),
                             TranscriptFormat::kSrt));
  ExpectRefused({{"file", audio}, {"beam_size", "5"}}, "beam_size",
                "beam_size must be at most 4 (");
}

TEST_F(SpeechCallsTest, AWindowThatNeverFitsIsRefusedByTheFieldsName) {
  directory_ = std::make_unique<WhisperDirectory>(SmallWhisper());
  Listen({});
  const int64_t page_bytes = Load()->description().page_bytes;
  ServeDirectory({.num_threads = 1, .kv_cache_bytes = 12 * page_bytes});
  ExpectRefused({{"file", Speech(1)}, {"beam_size", "7"}}, "beam_size",
                "beam_size is too high for the memory of keys and values: "
                "lower it or raise --kv-cache-mib, got 7");
}

TEST_F(SpeechCallsTest, WhatIsNoAudioIsRefusedAsTheFile) {
  ServerOptions options;
  options.speech.max_audio_bytes = 200'000;
  options.speech.max_audio_seconds = 3;
  Serve(std::move(options));
  ExpectRefused({{"model", "toy"}}, "file", "must be there");
  ExpectRefused({}, "file", "must be there");
  ExpectRefused({{"file", ""}}, "file", "empty");
  ExpectRefused({{"file", "not audio, but long enough to be some"}}, "file",
                "file");
  ExpectRefused({{"file", Speech(1).substr(0, 44)}}, "file", "file");
  ExpectRefused({{"file", Speech(1).substr(0, 20)}}, "file", "file");
  ExpectRefused({{"file", Speech(3.5)}}, "file", "(--max-audio-seconds)");
  ExpectRefused({{"file", Speech(7)}}, "file", "(--max-audio-mib)");
  // An unfinished file is heard to its end.
  const std::string cut = Speech(2).substr(0, 44 + 2 * kSpeechRate);
  EXPECT_EQ(BodyOf({{"file", cut}, {"response_format", "srt"}}),
            FormatTranscript(Heard(cut), TranscriptFormat::kSrt));
  // A stream has begun nothing: the error has a status.
  ExpectRefused({{"file", "x"}, {"stream", "true"}}, "file", "file");
}

TEST_F(SpeechCallsTest, BodiesThatAreNoFormAreRefused) {
  Serve();
  EXPECT_EQ(Post(kTranscriptions, "{}").status, 415);
  const auto send = [&](const std::string& form) {
    return Send(Concat("POST ", kTranscriptions,
                       " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                       "multipart/form-data; boundary=b\r\nContent-Length: ",
                       form.size(), "\r\n\r\n", form));
  };
  std::string form = FormOf({{"file", Speech(1)}});
  EXPECT_EQ(send(form.substr(0, form.size() - 4)).status, 400);
  EXPECT_EQ(send("").status, 400);
  EXPECT_EQ(send("--b\r\nX: y\r\n\r\n\r\n--b--").status, 400);
  EXPECT_EQ(send(form).status, 200);
}

// Texts, chats and scores alike, whatever else they ask for.
TEST_F(SpeechCallsTest, CallsOfTextsAreToldWhichRouteTakesAudio) {
  Serve();
  constexpr std::string_view kMessages =
      R"("messages": [{"role": "user", "content": "a"}])";
  constexpr std::string_view kTools =
      R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  for (const auto& [path, body] :
       {std::pair<std::string, std::string>("/v1/completions",
                                            R"({"prompt": "a"})"),
        {"/v1/completions", R"({"prompt": "a", "template": "fr-en"})"},
        {"/v1/completions/render", R"({"prompt": "a"})"},
        {"/v1/chat/completions", Concat("{", kMessages, "}")},
        {"/v1/chat/completions", Concat("{", kMessages, ", ", kTools,
                                        R"(, "tool_choice": "required"})")},
        {"/v1/chat/completions/render", Concat("{", kMessages, "}")},
        {"/v1/responses", R"({"input": "a"})"},
        {"/inference/v1/generate", R"({"token_ids": [1, 2]})"},
        {"/generative_scoring", R"({"query": "a", "items": ["b"]})"},
        {"/generative_scoring",
         R"({"query": [1], "items": [[2]], "label_token_ids": [3]})"}}) {
    const RawResponse response = Post(path, body);
    EXPECT_EQ(response.status, 400) << path;
    const json::value error = ParseJson(response.body).value().at("error");
    EXPECT_EQ(error.at("param"), "model") << path << body;
    EXPECT_EQ(error.at("message"),
              "the model \"toy\" reads audio: /v1/audio/transcriptions takes "
              "it")
        << path << body;
  }
}

TEST_F(SpeechCallsTest, AModelThatIsNotServedIsNotFound) {
  Serve();
  const RawResponse response =
      PostForm({{"file", Speech(1)}, {"model", "whisper-9"}});
  EXPECT_EQ(response.status, 404);
  EXPECT_THAT(response.body, HasSubstr(R"("param": "model")"));
}

TEST_F(SpeechCallsTest, OtherModelsRefuseByTheFieldModel) {
  Start();
  ExpectRefused({{"file", Speech(1)}}, "model", "cannot transcribe");
}

// No route sends a call to another one that refuses it.
TEST_F(SpeechCallsTest, AModelThatCannotTranscribeSaysWhy) {
  directory_ = std::make_unique<WhisperDirectory>(SmallWhisper());
  std::filesystem::remove(directory_->files().path("tokenizer.json"));
  Listen({});
  ServeDirectory();
  ExpectRefused({{"file", Speech(1)}}, "model", "cannot transcribe: ");
  const RawResponse response = Post("/v1/completions", R"({"prompt": [4]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("cannot transcribe: "));
  EXPECT_THAT(response.body, HasSubstr("put the model's tokenizer there"));
  EXPECT_THAT(response.body, Not(HasSubstr("/v1/audio")));
  const json::value card = ParseJson(Get("/v1/models").body).value();
  const json::value& own = card.at("data").at(0).at("espalier");
  EXPECT_EQ(own.at("task"), "transcribe");
  EXPECT_EQ(own.at("words"), false);
  EXPECT_EQ(own.at("translates"), false);
}

TEST_F(SpeechCallsTest, ModelsAndMetricsTellOfTranscriptions) {
  Serve();
  const json::value card = ParseJson(Get("/v1/models").body).value();
  const json::value& own = card.at("data").at(0).at("espalier");
  EXPECT_EQ(own.at("task"), "transcribe");
  EXPECT_EQ(own.at("words"), true);
  EXPECT_EQ(own.at("translates"), true);
  EXPECT_EQ(own.at("max_audio_seconds"), 14400);
  EXPECT_EQ(own.at("max_audio_bytes"), 25 << 20);
  EXPECT_EQ(Count("transcribed_audio_seconds_total"), 0);
  BodyOf({{"file", Speech(2.5)},
          {"temperatures", "0,1"},
          {"compression_ratio_threshold", "0"},
          {"no_speech_threshold", "1"}});
  PostForm({{"file", "nothing"}});
  EXPECT_EQ(Count("transcribed_audio_seconds_total"), 2.5);
  EXPECT_EQ(Count("transcriptions_total"), 2);
  EXPECT_EQ(Count("transcriptions_running"), 0);
  EXPECT_EQ(Count("transcriptions_waiting"), 0);
  EXPECT_GE(Count("transcribed_windows_total"), 3);
  EXPECT_EQ(Count("transcription_fallbacks_total"),
            Count("transcribed_windows_total"));
}

TEST_F(SpeechCallsTest, ManyAtOnceAreEachAsAlone) {
  ServerOptions options;
  options.speech.max_transcriptions = 3;
  Serve(std::move(options));
  const int num_calls = testing::Cases(8, 4);
  std::vector<std::string> alone;
  std::vector<std::string> together(num_calls);
  const auto fields = [](int i) -> Fields {
    return {{"file", Speech(1.5 + 0.4 * i, i)},
            {"response_format", i % 2 == 0 ? "srt" : "verbose_json"},
            {"temperatures", testing::Cases("0,0.8", "0")}};
  };
  for (int i = 0; i < num_calls; ++i) alone.push_back(BodyOf(fields(i)));
  std::vector<std::thread> threads;
  for (int i = 0; i < num_calls; ++i) {
    threads.emplace_back([&, i] { together[i] = BodyOf(fields(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST_F(SpeechCallsTest, OpenAisClientIsServed) {
  Serve();
  ExpectServes("audio_client.py", "no python3 with the module openai");
}

TEST_F(SpeechCallsTest, ThePageTranscribesAFileAndTheMicrophone) {
  Serve();
  ExpectServes("page/speech_page_client.py", "no python3 and Chromium");
}

TEST_F(SpeechCallsTest, ThePageEndsARecordingAtTheLimitOfSeconds) {
  ServerOptions options;
  options.speech.max_audio_seconds = 1;
  Serve(std::move(options));
  ExpectServes("page/speech_page_client.py", "no python3 and Chromium");
}

TEST_F(SpeechCallsTest, ThePageEndsARecordingAtTheLimitOfBytes) {
  ServerOptions options;
  options.speech.max_audio_bytes = 40'001;
  Serve(std::move(options));
  ExpectServes("page/speech_page_client.py", "no python3 and Chromium");
}

TEST_F(SpeechCallsTest, ModelsTellWhetherTheyTranslate) {
  Serve({}, {.is_multilingual = false});
  const json::value card = ParseJson(Get("/v1/models").body).value();
  EXPECT_EQ(card.at("data").at(0).at("espalier").at("translates"), false);
}

// Also if it has sent more than there are threads.
TEST_F(SpeechCallsTest, ACallerLeavesAThreadToOthers) {
  ServerOptions options;
  options.speech.max_transcriptions = 2;
  options.api_keys = ApiKeys({"key-of-a", "key-of-b"});
  Serve(std::move(options));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->Send(FormText(kTranscriptions, Long(),
                                  "Authorization: Bearer key-of-a\r\n"));
  }
  const std::string other = FormText(kTranscriptions, {{"file", Speech(1)}},
                                     "Authorization: Bearer key-of-b\r\n");
  EXPECT_EQ(Send(other).status, 200);
}

// A client that leaves before its turn, or has sent nothing yet, holds none.
TEST_F(SpeechCallsTest, WhoLeavesOrSendsNothingHoldsNoMemory) {
  const std::string long_form = FormText(kTranscriptions, Long());
  ServerOptions options;
  options.speech.max_transcriptions = 2;
  options.max_held_bytes = 3 * std::ssize(long_form);
  options.api_keys = ApiKeys({"key-of-a", "key-of-b"});
  Serve(std::move(options));
  const std::string of_a =
      FormText(kTranscriptions, Long(), "Authorization: Bearer key-of-a\r\n");
  const std::string of_b = FormText(
      kTranscriptions, {{"file", Speech(35)}, {"clip_timestamps", "0,1"}},
      "Authorization: Bearer key-of-b\r\n");
  RawClient stays = Connect();
  stays.Send(of_a);
  ASSERT_TRUE(AwaitCount("transcriptions_running", 1));
  {
    RawClient leaves = Connect();
    leaves.Send(of_a);
    ASSERT_TRUE(AwaitCount("transcriptions_waiting", 1));
    EXPECT_EQ(Send(of_b).status, 200);
    RawClient leaves_too = Connect();
    leaves_too.Send(of_a);
    ASSERT_TRUE(AwaitCount("transcriptions_waiting", 2));
    EXPECT_EQ(Send(of_b).status, 429);
  }
  EXPECT_TRUE(AwaitCount("transcriptions_waiting", 0));
  EXPECT_EQ(Count("transcriptions_running"), 1);
  RawClient sends_nothing = Connect();
  sends_nothing.Send(of_a.substr(0, of_a.find("--b\r\n")));
  RawClient sends_nothing_too = Connect();
  sends_nothing_too.Send(of_a.substr(0, of_a.find("--b\r\n")));
  EXPECT_EQ(Send(of_b).status, 200);
}

// A long one neither makes the next of its caller wait nor outlives its client,
// its deadline or the server.
TEST_F(SpeechCallsTest, LongOnesHoldNeitherOthersNorTheServer) {
  ServerOptions options;
  options.speech.max_transcriptions = 3;
  Serve(std::move(options));
  {
    RawClient leaves = Connect();
    leaves.Send(FormText(kTranscriptions, Long()));
    ASSERT_TRUE(AwaitCount("transcriptions_running", 1));
    BodyOf({{"file", Speech(1)}});
    EXPECT_EQ(Count("transcriptions_running"), 1);
  }
  EXPECT_TRUE(AwaitCount("transcriptions_running", 0));
  EXPECT_EQ(Count("transcribed_audio_seconds_total"), 1);
  const RawResponse late = PostForm(Long({{"deadline_ms", "300"}}));
  EXPECT_EQ(late.status, 504);
  EXPECT_TRUE(AwaitCount("transcriptions_running", 0));
  // Aborted by its id.
  RawClient aborted = Connect();
  aborted.Send(FormText(kTranscriptions, Long({{"stream", "true"}}),
                        "X-Request-ID: talk\r\n"));
  ASSERT_TRUE(AwaitCount("transcriptions_running", 1));
  EXPECT_THAT(Post("/abort_requests", R"({"request_ids": ["talk"]})").body,
              HasSubstr("\"aborted\": 1"));
  const RawResponse end = aborted.Receive();
  EXPECT_THAT(end.body, HasSubstr("aborted"));
  // The server's end is another.
  RawClient last = Connect();
  last.Send(FormText(kTranscriptions, Long()));
  ASSERT_TRUE(AwaitCount("transcriptions_running", 1));
  RawClient streams = Connect();
  streams.Send(FormText(kTranscriptions, Long({{"stream", "true"}})));
  ASSERT_TRUE(AwaitCount("transcriptions_running", 2));
  const absl::Time begin = absl::Now();
  server_->Stop();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  for (RawClient* const client : {&last, &streams}) {
    const RawResponse response = client->Receive();
    EXPECT_EQ(response.status, 503);
    EXPECT_THAT(response.body, HasSubstr("the server shuts down"));
  }
}

TEST_F(SpeechCallsTest, AStreamThatTheServersEndCutsOffSaysSo) {
  Serve();
  RawClient client = Connect();
  client.Send(FormText(kTranscriptions, {{"file", Speech(600)},
                                         {"temperatures", "0"},
                                         {"num_beams", "5"},
                                         {"stream", "true"}}));
  std::string begun;
  while (begun.find("transcript.text.delta") == std::string::npos) {
    const std::string byte = client.ReceiveBytes(1);
    ASSERT_FALSE(byte.empty()) << begun;
    begun += byte;
  }
  EXPECT_THAT(begun, HasSubstr(" 200 "));
  server_->Stop();
  const std::optional<std::string> rest = client.ReceiveAll();
  ASSERT_TRUE(rest.has_value());
  EXPECT_THAT(*rest, HasSubstr("the server shuts down"));
  EXPECT_THAT(*rest, Not(HasSubstr("transcript.text.done")));
}

}  // namespace
}  // namespace espalier::serve
