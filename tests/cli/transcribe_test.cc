// espalier transcribe: files of audio as text with times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "examples/cli/output/speech_progress.h"
#include "tests/cli/program.h"
#include "tests/speech/signals.h"
#include "tests/speech/tone_network.h"
#include "tests/speech/wav_file.h"
#include "tests/whisper_directory.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class TranscribeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new WhisperDirectory(); }
  static void TearDownTestSuite() { delete model_; }

  std::string Audio(const std::string& name, double seconds) const {
    std::string path = files_.path(name);
    WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1,
               Noise(static_cast<int>(seconds * 16000), 0.3F));
    return path;
  }

  // Windows that are never silent, so that there is something to print.
  static ProgramRun Run(std::vector<std::string> args,
                        const std::string& input = "") {
    args.insert(args.begin(),
                {"transcribe", "-m", model_->path(), "--threads", "1"});
    args.insert(args.end(), {"--no_speech_threshold", "None"});
    return RunEspalier(args, input);
  }

  static WhisperDirectory* model_;
  const ScratchDirectory files_;
};
WhisperDirectory* TranscribeTest::model_ = nullptr;

TEST_F(TranscribeTest, PrintsOneFormatOrWritesAllOfThem) {
  const std::string audio = Audio("talk.wav", 3.4);
  const std::string directory = files_.path("out/put");
  const ProgramRun all = Run({audio, "-f", "all", "-o", directory});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out,
              ContainsRegex("^\\[00:00\\.[0-9]+ --> 00:0[0-3]\\.[0-9]+\\] "));
  for (const std::string format : {"txt", "vtt", "srt", "tsv", "json"}) {
    const ProgramRun one = Run({audio, "--output_format", format});
    EXPECT_EQ(one.exit_code, 0) << one.err;
    EXPECT_EQ(one.err, "");
    EXPECT_EQ(one.out, ReadText(directory + "/talk." + format)) << format;
    EXPECT_NE(one.out, "");
  }
  const ProgramRun quiet =
      Run({audio, "-f", "txt", "-o", directory, "--verbose", "False"});
  EXPECT_EQ(quiet.out, "");
  EXPECT_EQ(quiet.exit_code, 0);
}

// Subtitles that segments do not end are printed as they are complete.
TEST_F(TranscribeTest, PrintsSubtitlesOfWords) {
  const std::string audio = Audio("words.wav", 7.9);
  const std::string directory = files_.path("words");
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"--max_line_width", "12", "--max_line_count", "2"},
      {"--max_words_per_line", "1"},
      {"--highlight_words", "True", "--max_line_width", "20"}};
  std::set<std::string> all;
  for (const std::vector<std::string>& options : lines) {
    for (const std::string format : {"srt", "vtt"}) {
      // Samples, because some of their segments have several words.
      std::vector<std::string> args = {
          audio,           "-f", format, "--word_timestamps", "True",
          "--temperature", "8"};
      args.insert(args.end(), options.begin(), options.end());
      const ProgramRun printed = Run(args);
      ASSERT_EQ(printed.exit_code, 0) << printed.err;
      args.insert(args.end(), {"-o", directory});
      EXPECT_EQ(Run(args).exit_code, 0);
      EXPECT_EQ(printed.out, ReadText(directory + "/words." + format));
      EXPECT_THAT(printed.out, HasSubstr(" --> "));
      all.insert(printed.out);
    }
  }
  EXPECT_EQ(all.size(), 2 * lines.size());
  const json::value value = ParseLines(
      Run({audio, "-f", "json", "--word_timestamps", "true"}).out)[0];
  for (const json::value& segment : value.at("segments").as_array()) {
    EXPECT_TRUE(segment.at("words").is_array());
  }
}

TEST_F(TranscribeTest, ReadsStdinFromAPipe) {
  const std::string audio = Audio("a.wav", 1.3);
  const ProgramRun file = Run({audio});
  const ProgramRun pipe = Run({"-"}, ReadText(audio));
  EXPECT_EQ(pipe.exit_code, 0) << pipe.err;
  EXPECT_EQ(pipe.out, file.out);
  const ProgramRun broken = Run({"-"}, "no audio");
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, StartsWith("espalier: stdin: libsndfile"));
}

TEST_F(TranscribeTest, GoesOnAfterAFileThatIsNoAudio) {
  const std::string audio = Audio("a.wav", 1.3);
  const std::string text = files_.Write("b.wav", "no audio");
  const ProgramRun run = Run({text, audio});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, Concat("==> ", audio, " <==\n", Run({audio}).out));
  EXPECT_THAT(run.err, StartsWith("espalier: " + text));
  const ProgramRun none = Run({text});
  EXPECT_EQ(none.exit_code, 2);
}

TEST_F(TranscribeTest, TellsFilesApart) {
  const std::string a = Audio("a.wav", 1.3);
  const std::string b = Audio("b.wav", 2.3);
  const ProgramRun both = Run({a, b});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.out, Concat("==> ", a, " <==\n", Run({a}).out, "\n==> ", b,
                             " <==\n", Run({b}).out));
  const ProgramRun lines = Run({a, b, "-f", "json"});
  const json::value alone = ParseLines(Run({b, "-f", "json"}).out)[0];
  EXPECT_FALSE(alone.as_object().contains("file"));
  const json::value second = ParseLines(lines.out)[1];
  EXPECT_EQ(second.at("file"), json::value(b));
  EXPECT_EQ(second.at("segments"), alone.at("segments"));
  const ProgramRun files = Run({a, b, "-f", "srt", "-o", files_.path("out")});
  EXPECT_THAT(files.out, HasSubstr(Concat("\n\n==> ", b, " <==\n[")));
  EXPECT_THAT(ReadText(files_.path("out/b.srt")), StartsWith("1\n"));
}

// Before hours of transcription, and what is there stays.
TEST_F(TranscribeTest, FindsOutFirstThatResultsCannotBeWritten) {
  const std::string audio = Audio("talk.wav", 1.3);
  const std::string directory = files_.path("out");
  std::filesystem::create_directories(directory + "/talk.json");
  files_.Write("out/talk.vtt", "before");
  const ProgramRun run = Run({audio, "-f", "all", "-o", directory});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err,
              StartsWith(Concat("espalier: --output-dir: cannot write ",
                                directory, "/talk.json: ")));
  EXPECT_FALSE(std::filesystem::exists(directory + "/talk.txt"));
  EXPECT_EQ(ReadText(directory + "/talk.vtt"), "before");
}

TEST_F(TranscribeTest, LeavesNothingBehindIfItCannotBegin) {
  const std::string audio = Audio("talk.wav", 1.3);
  const std::string directory = files_.path("new");
  EXPECT_EQ(Run({audio, "-o", directory, "--language", "xx"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(directory));
  std::filesystem::create_directories(directory);
  std::filesystem::create_symlink(files_.path("target"),
                                  directory + "/talk.txt");
  EXPECT_EQ(Run({audio, "-o", directory, "--language", "xx"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(files_.path("target")));
  EXPECT_EQ(Run({audio, "-o", directory}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(files_.path("target")));
}

TEST_F(TranscribeTest, RefusesResultsThatLeadNowhere) {
  const std::string audio = Audio("talk.wav", 1.3);
  const std::string directory = files_.path("odd");
  std::filesystem::create_directories(directory);
  const std::string result = directory + "/talk.txt";
  const auto expect_refused = [&](const std::string& reason) {
    const ProgramRun run = Run({audio, "-o", directory});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr(Concat("cannot write ", result, ": ")));
    EXPECT_THAT(run.err, HasSubstr(reason));
    std::filesystem::remove(result);
  };
  std::filesystem::create_symlink("nothing/here", result);
  expect_refused("No such file or directory");
  ASSERT_EQ(mkfifo(result.c_str(), 0600), 0);
  expect_refused("it is a pipe");
  std::filesystem::create_symlink("talk.txt", result);  // to itself
  expect_refused("");
}

TEST_F(TranscribeTest, NeverWritesOverTheAudio) {
  const std::string audio = Audio("talk.txt", 1.3);
  const std::string other = Audio("b.wav", 1.3);
  const std::string before = ReadText(audio);
  std::filesystem::create_directories(files_.path("out"));
  std::filesystem::create_symlink(audio, files_.path("out/b.txt"));
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{audio, "-o", files_.path("")},
        {other, audio, "-o", files_.path("out")}}) {
    const ProgramRun run = Run(args);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr(Concat(" is the audio ", audio)));
    EXPECT_EQ(ReadText(audio), before);
  }
}

TEST_F(TranscribeTest, HasOptionsByTheNamesOfOthers) {
  const std::string audio = Audio("a.wav", 2.2);
  const ProgramRun run = Run({audio,
                              "--language",
                              "German",
                              "--task",
                              "translate",
                              "--temperature",
                              "0",
                              "--temperature_increment_on_fallback",
                              "None",
                              "--best_of",
                              "2",
                              "--beam_size",
                              "3",
                              "--patience",
                              "1.5",
                              "--length_penalty",
                              "0.9",
                              "--suppress_tokens",
                              "-1,5",
                              "--initial_prompt",
                              "Hello world",
                              "--condition_on_previous_text",
                              "False",
                              "--compression_ratio_threshold",
                              "3",
                              "--log_prob_threshold",
                              "-2",
                              "--clip_timestamps",
                              "0.5,2",
                              "--max_initial_timestamp",
                              "0.5",
                              "--without-timestamps",
                              "true",
                              "--hotwords",
                              "world",
                              "--output_format",
                              "json",
                              "--num-alternatives",
                              "3"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json::value value = ParseLines(run.out)[0];
  EXPECT_EQ(value.at("language"), "de");
  EXPECT_EQ(value.at("windows").at(0).at("alternatives").as_array().size(), 3);
  EXPECT_EQ(value.at("windows").at(0).at("start").to_number<double>(), 0.5);
}

TEST_F(TranscribeTest, SegmentsTellTheirLanguagesWhereEachWindowHasItsOwn) {
  const std::string audio = Audio("a.wav", 2.2);
  const auto languages = [&](const std::string& threshold) {
    const ProgramRun run =
        Run({audio, "-f", "json", "--multilingual", "True", "--language",
             "Thai", "--language_detection_threshold", threshold});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const json::value value = ParseLines(run.out)[0];
    EXPECT_EQ(value.at("language"), "th");
    std::set<std::string> found;
    for (const json::value& segment : value.at("segments").as_array()) {
      found.emplace(segment.at("language").as_string());
    }
    return found;
  };
  EXPECT_THAT(languages("1"), ElementsAre("th"));
  EXPECT_THAT(languages("0"), AllOf(Not(IsEmpty()), Not(Contains("th"))));
  const WhisperDirectory english({.is_multilingual = false});
  const ProgramRun refused = RunEspalier(
      {"transcribe", "-m", english.path(), audio, "--multilingual", "true"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--multilingual must be false for an "
                                     "English model, got true"));
}

TEST_F(TranscribeTest, SaysThatClipsAreBehindTheAudio) {
  const ProgramRun run = Run({Audio("a.wav", 1.5), "--clip-timestamps", "9"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("a.wav: --clip-timestamps begin at 9 s, and "
                                 "the audio ends at 1.5 s"));
}

TEST_F(TranscribeTest, PunctuationMayBeNone) {
  const std::string audio = Audio("a.wav", 1.5);
  const ProgramRun run =
      Run({audio, "-f", "json", "--word_timestamps", "true",
           "--append_punctuations", "", "--prepend_punctuations", ""});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\"words\""));
}

TEST_F(TranscribeTest, TranscribesSpeechAlone) {
  files_.Write("vad.safetensors", SafetensorsOf(ToneTensors()));
  const std::string network = files_.path("vad.safetensors");
  const std::string audio = Audio("a.wav", 2);
  // At threshold 0 all is speech, at 1 nothing.
  const ProgramRun plain = Run({audio});
  const ProgramRun all =
      Run({audio, "--vad-model", network, "--vad-threshold", "0"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(all.out, plain.out);
  const ProgramRun none =
      Run({audio, "--vad-model", network, "--vad-threshold", "1"});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(none.out, "");
  const ProgramRun refused =
      Run({audio, "--vad-model", network, "--vad_threshold", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("--vad-threshold must be in [0, 1], got 2"));
}

TEST_F(TranscribeTest, PrintsFigures) {
  const ProgramRun run = Run({Audio("a.wav", 2), "--figures"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("2.0 s of audio in "));
}

TEST_F(TranscribeTest, RefusesWhatItDoesNotHave) {
  const std::string audio = Audio("a.wav", 1);
  const auto expect_refused = [&](const std::vector<std::string>& args,
                                  const std::string& message) {
    const ProgramRun run = Run(args);
    EXPECT_EQ(run.exit_code, 2) << message;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(message));
  };
  for (const std::string option :
       {"--max_line_width", "--max_words_per_line"}) {
    expect_refused({audio, "-f", "srt", option, "5"},
                   " needs --word-timestamps true");
    expect_refused({audio, "--word_timestamps", "True", option, "5"},
                   " needs --output-format srt, vtt or all");
  }
  expect_refused({audio, "-f", "vtt", "--highlight_words", "True"},
                 "--highlight-words needs --word-timestamps true");
  const auto expect_subtitles_refused = [&](std::vector<std::string> args,
                                            const std::string& message) {
    args.insert(args.begin(),
                {audio, "-f", "srt", "--word_timestamps", "True"});
    expect_refused(args, message);
  };
  expect_subtitles_refused({"--max_line_count", "2"},
                           "--max-line-count needs --max-line-width");
  expect_subtitles_refused({"--max_line_count", "2", "--max_line_width", "42",
                            "--max_words_per_line", "3"},
                           "--max-words-per-line must be left out with "
                           "--max-line-count");
  expect_subtitles_refused({"--max_line_width", "0"}, "--max-line-width");
  expect_subtitles_refused(
      {"--max_line_width", "42", "--max_line_count", "10001"},
      "--max-line-count must be an integer in [1, 10000]");
  expect_subtitles_refused({"--append-punctuations="},
                           "write --append-punctuations \"\" for none");
  expect_subtitles_refused({"--hallucination_silence_threshold", "x"},
                           "must be a number or None, got \"x\"");
  expect_refused({audio, "--append_punctuations", "!"},
                 "--append-punctuations needs --word-timestamps");
  expect_refused({audio, "--hallucination_silence_threshold", "2"},
                 "--hallucination-silence-threshold needs --word-timestamps");
  expect_refused({audio, "--vad_filter", "True"}, "--vad-model");
  expect_refused({audio, "--vad_threshold", "0.6"},
                 "--vad-threshold needs --vad-model");
  expect_refused({audio, "--vad_model", audio}, Concat("--vad-model: ", audio));
  expect_refused({audio, "--batch_size", "8"},
                 "--batch-size needs --vad-model, got 8");
  expect_refused({audio, "--generation-config", "none"},
                 "transcribe has no option --generation-config");
  expect_refused({audio, "-f", "doc"},
                 "-f must be txt, vtt, srt, tsv, json or all, got \"doc\"");
  expect_refused({audio, "-f", "all"}, "-f all needs --output-dir");
  expect_refused({audio, audio, "-f", "srt"}, "need --output-dir");
  expect_refused({audio, audio, "-o", files_.path("x")}, "the same name");
  expect_refused({audio, "--temperature", "0,x"},
                 "--temperature must be numbers with commas between them, got "
                 "\"0,x\"");
  expect_refused({audio, "--temperature", "-1"},
                 "--temperature must be in [0, 100], got -1");
  expect_refused({audio, "--temperature", "0,1",
                  "--temperature_increment_on_fallback", "0.2"},
                 "must be left out with several temperatures");
  expect_refused({audio, "--beam-size", "0"}, "--beam-size must be");
  expect_refused({audio, "--language", "Klingon"}, "--language");
  expect_refused({audio, "--task", "sing"},
                 "--task must be transcribe or translate, got \"sing\"");
  expect_refused({}, "audio");
  EXPECT_THAT(RunEspalier({"transcribe", "--help"}).out,
              HasSubstr("default that of two"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"generate"},
        {"generate", "--chat"},
        {"generate", "--from", "en", "--to", "fr"},
        {"score"},
        {"batch"}}) {
    std::vector<std::string> args = command;
    args.insert(args.end(), {"-m", model_->path()});
    const ProgramRun text =
        RunEspalier(args, "{\"prompt\": \"a\", \"continuations\": [\"b\"]}\n");
    EXPECT_EQ(text.exit_code, 2) << text.err;
    EXPECT_THAT(text.err,
                HasSubstr(Concat(
                    model_->path(),
                    " has a model of speech, which reads audio: use espalier "
                    "transcribe, or serve's /v1/audio/transcriptions\n")));
  }
  const ProgramRun other =
      RunEspalier({"transcribe", "-m", ModelDirectory("en-fr"), audio});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("has no model of speech"));
}

TEST(SpeechProgressTest, SaysHowMuchIsLeft) {
  const auto line = [](double done, double duration, double seconds) {
    return cli::FormatSpeechProgress("a.mp3", done, duration,
                                     absl::Seconds(seconds));
  };
  EXPECT_EQ(line(0, 90, 1), "a.mp3: 0:00 of 1:30");
  EXPECT_EQ(line(30, 90, 15), "a.mp3: 0:30 of 1:30, 2.0x real time, 0:30 left");
  EXPECT_EQ(line(3600, 7322, 100),
            "a.mp3: 1:00:00 of 2:02:02, 36x real time, 1:43 left");
}

}  // namespace
}  // namespace espalier::testing
