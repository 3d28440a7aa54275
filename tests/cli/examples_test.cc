// Examples in help texts and documents are run, and must print what is shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/program.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kRoot = SourcePath();

// A directory with what examples name: the program, models, files.
class ExamplesTest : public ::testing::Test {
 protected:
  ExamplesTest() {
    LinkAll(kRoot + "/models", "models");
    LinkAll(kRoot + "/models/en-fr", "models/chat");
    scratch_.Write("models/chat/chat_template.jinja",
                   "{{ bos_token }}{{ messages[-1].content }}");
    std::filesystem::create_directories(scratch_.path("build/release/bin"));
    std::filesystem::create_symlink(
        ESPALIER_PROGRAM, scratch_.path("build/release/bin/espalier"));
    scratch_.Write("letter.txt", "It rains.\n\nI am hungry.\n");
    scratch_.Write("texts.jsonl", "{\"text\": \"It rains.\"}\n");
    scratch_.Write("conversations.jsonl", "{\"text\": \"It rains.\"}\n");
    scratch_.Write("tokens.jsonl", "{\"tokens\": [1, 300]}\n");
    scratch_.Write("requests.jsonl", "{\"prompt\": \"It rains.\"}\n");
  }

  // Links all files of `from` into a directory of their own.
  void LinkAll(const std::string& from, const std::string& directory) const {
    std::filesystem::create_directories(scratch_.path(directory));
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      std::filesystem::create_symlink(
          entry.path(),
          scratch_.path(directory + "/" + entry.path().filename().string()));
    }
  }

  ProgramRun Run(const std::string& command) const {
    return RunProgram("/bin/sh",
                      {"-c", "cd '" + scratch_.path() +
                                 "' && PATH=build/release/bin:$PATH "
                                 "&& " +
                                 command},
                      "");
  }

  const ScratchDirectory scratch_;
};

// Lines that end in a backslash joined with those after them.
std::vector<std::string> WholeLines(const std::string& text) {
  std::vector<std::string> lines;
  bool goes_on = false;
  for (const std::string& line : SplitLines(text)) {
    if (goes_on) {
      lines.back() += line;
    } else {
      lines.push_back(line);
    }
    goes_on = lines.back().ends_with('\\');
    if (goes_on) lines.back().pop_back();
  }
  return lines;
}

TEST_F(ExamplesTest, HelpShowsWhatRuns) {
  int num_examples = 0;
  for (const char* subcommand :
       {"generate", "batch", "tokenize", "inspect", "trace"}) {
    const ProgramRun help = RunEspalier({subcommand, "--help"});
    for (std::string line : WholeLines(help.out)) {
      if (!line.starts_with("  espalier ")) continue;
      ++num_examples;
      line.erase(std::min(line.find(" | "), line.size()));
      const ProgramRun run = Run(line);
      const bool needs_gpu = line.find("--device cuda") != line.npos;
      if (needs_gpu && run.exit_code != 0) {
        EXPECT_THAT(run.err, HasSubstr("cuda")) << line;
      } else {
        EXPECT_EQ(run.exit_code, 0) << line << run.err;
      }
    }
  }
  EXPECT_GE(num_examples, 20);
}

TEST_F(ExamplesTest, TheSamplesOfTheHelpDiffer) {
  for (const std::string& line :
       WholeLines(RunEspalier({"generate", "--help"}).out)) {
    if (line.find("--do-sample") == std::string::npos ||
        !line.starts_with("  espalier ")) {
      continue;
    }
    const std::vector<std::string> printed = SplitLines(Run(line).out);
    ASSERT_THAT(printed, SizeIs(5));
    EXPECT_NE(printed[1], printed[2]);
    EXPECT_NE(printed[2], printed[3]);
    return;
  }
  FAIL() << "no example of sampling";
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// True for equal words, and for words that begin with nearly equal numbers, as
// CPUs round differently.
bool SameWord(const std::string& a, const std::string& b) {
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double value = std::strtod(a.c_str(), &end_a);
  const double other = std::strtod(b.c_str(), &end_b);
  if (a == b || end_a == a.c_str() || end_b == b.c_str()) return a == b;
  // A comma may follow.
  return std::string_view(end_a) == end_b && std::abs(value - other) < 2e-4;
}

// Returns the words with "0" in place of each number: figures differ from run
// to run.
std::string WithoutNumbers(const std::vector<std::string>& words) {
  static const std::regex kNumber("[0-9]+(\\.[0-9]+)?");
  std::string text;
  for (const std::string& word : words) {
    text += std::regex_replace(word, kNumber, "0") + " ";
  }
  return text;
}

// Checks that `shown` is all of stdout, or its beginning and "...", or all of
// it and stderr, but for the numbers of that.
void ExpectShown(const ProgramRun& run, const std::string& shown) {
  const std::vector<std::string> expected = Words(shown);
  const std::vector<std::string> words = Words(run.out);
  ASSERT_FALSE(words.empty());
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_LT(i, expected.size()) << "not shown: " << words[i];
    if (expected[i] == "...") return;
    ASSERT_TRUE(SameWord(expected[i], words[i]))
        << "shown " << expected[i] << ", printed " << words[i];
  }
  const std::vector<std::string> rest(expected.begin() + std::ssize(words),
                                      expected.end());
  if (!rest.empty()) {
    EXPECT_EQ(WithoutNumbers(rest), WithoutNumbers(Words(run.err)));
  }
}

struct ShownCommand {
  std::string command;
  std::string output;
};

// Returns the commands after "$ " in code blocks of a document.
std::vector<ShownCommand> ShownCommands(const std::string& document) {
  std::vector<ShownCommand> commands;
  bool in_command = false;
  bool goes_on = false;
  for (const std::string& line : SplitLines(document)) {
    if (line.starts_with("```")) in_command = false;
    if (line.starts_with("$ ")) {
      commands.push_back({line.substr(2), ""});
      in_command = true;
    } else if (in_command) {
      std::string& text =
          goes_on ? commands.back().command : commands.back().output;
      text += (goes_on ? "\n" : "") + line + (goes_on ? "" : "\n");
    }
    goes_on = in_command && commands.back().output.empty() &&
              (line.ends_with('\\') || line.ends_with('|'));
  }
  return commands;
}

TEST_F(ExamplesTest, DocumentsShowWhatIsPrinted) {
  int num_commands = 0;
  for (const char* document : {"README.md", "docs/streams.md"}) {
    for (const auto& [command, output] :
         ShownCommands(ReadText(kRoot + "/" + document))) {
      if (command.find("espalier ") == std::string::npos) continue;
      SCOPED_TRACE(command);
      ++num_commands;
      const ProgramRun run = Run(command);
      EXPECT_EQ(run.exit_code, 0) << run.err;
      ExpectShown(run, output);
    }
  }
  EXPECT_GE(num_commands, 5);
}

}  // namespace
}  // namespace espalier::testing
