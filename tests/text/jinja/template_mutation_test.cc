// Templates that are wrong in some place: each is rendered, or refused with an
// error that has a place. Nothing else, whatever the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/jinja/template.h"

namespace espalier::jinja {
namespace {

using ::testing::StartsWith;

constexpr int kNumMutatedTemplates = 20'000;

std::vector<std::string> ValidTemplates() {
  std::vector<std::string> sources;
  for (const char* const folder :
       {"tests/text/jinja/templates", "tests/data/chat"}) {
    std::vector<std::filesystem::path> paths;
    for (const auto& file :
         std::filesystem::directory_iterator(SourcePath(folder))) {
      if (file.path().extension() == ".jinja") paths.push_back(file.path());
    }
    std::ranges::sort(paths);
    for (const auto& path : paths) {
      const std::string text = ReadFile(path.string(), 1 << 20).value();
      const std::vector<std::string> parts = absl::StrSplit(text, "=====\n");
      sources.insert(sources.end(), parts.begin(), parts.end());
    }
  }
  return sources;
}

class TemplateMutator {
 public:
  TemplateMutator(std::vector<std::string> sources, uint32_t seed)
      : sources_(std::move(sources)), random_(seed) {}

  std::string Mutate() {
    std::string text = sources_[Below(sources_.size())];
    const size_t num_changes = 1 + Below(3);
    for (size_t i = 0; i < num_changes && !text.empty(); ++i) Change(&text);
    return text;
  }

 private:
  size_t Below(size_t end) { return random_() % end; }

  void Change(std::string* text) {
    const size_t at = Below(text->size());
    switch (Below(7)) {
      case 0:
        (*text)[at] ^= 1 << Below(7);
        return;
      case 1:
        text->resize(at);
        return;
      case 2:
        text->erase(at, 1 + Below(12));
        return;
      case 3:
        text->insert(Below(text->size()), text->substr(at, 1 + Below(60)));
        return;
      case 4: {
        const std::string& other = sources_[Below(sources_.size())];
        if (other.empty()) return;
        text->insert(at, other.substr(Below(other.size()), 1 + Below(80)));
        return;
      }
      default:
        text->insert(at, kWords[Below(std::size(kWords))]);
    }
  }

  static constexpr const char* kWords[] = {"{{",
                                           "}}",
                                           "{%",
                                           "%}",
                                           "{%-",
                                           "-%}",
                                           "{#",
                                           "#}",
                                           "(",
                                           ")",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           "|",
                                           "|tojson",
                                           "|list",
                                           "|join(',')",
                                           "'",
                                           "\"",
                                           "\\",
                                           "\n",
                                           " is ",
                                           " not ",
                                           " in ",
                                           "~",
                                           "**",
                                           "//",
                                           "%",
                                           "[::-1]",
                                           "[-1]",
                                           " if ",
                                           " else ",
                                           "{% endif %}",
                                           "{% endfor %}",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "1e308",
                                           "0",
                                           "None",
                                           "true",
                                           "'%s' % ",
                                           "messages",
                                           "loop",
                                           "namespace(a=1)",
                                           "range(9)",
                                           "|map(attribute='x.y')",
                                           "*999999999",
                                           ".x",
                                           "()",
                                           "caller()",
                                           "{% set x = ",
                                           "{% macro m(a) %}",
                                           "\xC3\xA9",
                                           "\xFF",
                                           "|format(1)",
                                           ".format(2)",
                                           "|indent(3)"};

  const std::vector<std::string> sources_;
  std::mt19937 random_;
};

TEST(TemplateMutationTest, ATemplateIsRenderedOrRefusedWithItsPlace) {
  Inputs inputs;
  const json::value messages = {
      {{"role", "system"}, {"content", "Be <brief>."}},
      {{"role", "user"}, {"content", "é🎈 'Hi' \"you\"\n"}},
      {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {1, 2.5}}}};
  ASSERT_OK(inputs.Set("messages", messages));
  ASSERT_OK(inputs.Set("tools", json::value{{{"name", "f"}}}));
  inputs.SetTrusted("bos_token", "<s>");
  RenderOptions options;
  options.limits.steps = 5'000;
  options.limits.bytes = 100'000;
  TemplateMutator mutator(ValidTemplates(), 20261);
  int num_rendered = 0;
  for (int i = 0; i < kNumMutatedTemplates; ++i) {
    const std::string source = mutator.Mutate();
    SCOPED_TRACE(source);
    const auto parsed = Template::Parse(source);
    if (!parsed.ok()) {
      EXPECT_FALSE(parsed.status().message().empty());
      continue;
    }
    const auto text = (*parsed)->Render(inputs, options);
    if (text.ok()) {
      EXPECT_OK(CheckUtf8(text->bytes()));
      ++num_rendered;
    } else {
      EXPECT_THAT(Message(text.status()), StartsWith("line "));
      EXPECT_OK(CheckUtf8(Message(text.status())));
    }
  }
  EXPECT_GT(num_rendered, kNumMutatedTemplates / 20);
  EXPECT_LT(num_rendered, kNumMutatedTemplates);
}

}  // namespace
}  // namespace espalier::jinja
