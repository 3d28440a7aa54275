// Catalogues of items over HTTP: PUT, GET and DELETE, and calls that name them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/numpy_file.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::NumpyFile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class ItemsTest : public ServerFixture {
 protected:
  RawResponse Put(std::string_view name, std::string_view lines,
                  std::string_view headers = "") {
    return Send(Concat("PUT /v1/items/", name,
                       " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ",
                       lines.size(), "\r\n", headers, "\r\n", lines));
  }
  RawResponse Delete(std::string_view name) {
    return Send(Concat("DELETE /v1/items/", name,
                       " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
  }
  static std::string CallOf(std::string_view constraint) {
    return PostText(
        "/v1/completions",
        Concat(R"({"prompt": [4, 5], "num_beams": 9, "n": 9, "max_tokens": 6,)",
               R"("early_stopping": "never", "return_token_ids": true,)",
               R"("ignore_eos": true, "constraint": )", constraint, "}"));
  }
  static std::set<std::string> ItemsOf(const RawResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    std::set<std::string> items;
    if (response.status != 200) return items;
    const json::value answer = ParseJson(response.body).value();
    for (const json::value& choice : answer.at("choices").as_array()) {
      items.insert(WriteJson(choice.at("token_ids")));
    }
    return items;
  }
  static std::string ErrorOf(const RawResponse& response) {
    return std::string(
        ParseJson(response.body).value().at("error").at("message").as_string());
  }
};

TEST_F(ItemsTest, ACallNamesACatalogueThatWasPut) {
  Start({.allow_control = true});
  EXPECT_EQ(Get("/v1/items").body, R"({"object": "list", "data": []})");
  const RawResponse put = Put("songs", "[7, 8]\n[7, 9, 10]\n[11]\n");
  ASSERT_EQ(put.status, 200) << put.body;
  const json::value made = ParseJson(put.body).value();
  EXPECT_EQ(made.at("id"), "songs");
  EXPECT_EQ(made.at("object"), "items");
  EXPECT_EQ(made.at("version"), 1);
  EXPECT_EQ(made.at("num_items"), 3);
  EXPECT_EQ(made.at("max_length"), 3);
  const json::value list = ParseJson(Get("/v1/items").body).value();
  ASSERT_EQ(list.at("data").as_array().size(), 1);
  EXPECT_EQ(list.at("data").at(0), made);
  EXPECT_THAT(ItemsOf(Send(CallOf(R"({"items": "songs"})"))),
              UnorderedElementsAre("[7, 8]", "[7, 9, 10]", "[11]"));
  EXPECT_THAT(
      ItemsOf(Send(CallOf(R"({"items": "songs", "exclude": [[7, 8]]})"))),
      UnorderedElementsAre("[7, 9, 10]", "[11]"));
  EXPECT_THAT(
      ItemsOf(Send(CallOf(R"({"items": "songs", "exclude_prefixes": [[7]]})"))),
      UnorderedElementsAre("[11]"));
  const RawResponse deleted = Delete("songs");
  EXPECT_EQ(deleted.status, 200);
  EXPECT_EQ(deleted.body,
            R"({"id": "songs", "object": "items", "deleted": true})");
  EXPECT_EQ(Delete("songs").status, 404);
  const RawResponse none = Send(CallOf(R"({"items": "songs"})"));
  EXPECT_EQ(none.status, 400);
  EXPECT_THAT(ErrorOf(none), HasSubstr("constraint.items must name a catalogue"
                                       ", of which there is none, got "
                                       "\"songs\""));
}

TEST_F(ItemsTest, ABodyMayBeAFileOfNumPy) {
  Start({.allow_control = true});
  const std::string file =
      NumpyFile<int32_t>("<i4", "(3, 3)", {7, 8, -1, 7, 9, 10, 11, -1, -1});
  const RawResponse put = Put("songs", file);
  ASSERT_EQ(put.status, 200) << put.body;
  EXPECT_THAT(ItemsOf(Send(CallOf(R"({"items": "songs"})"))),
              UnorderedElementsAre("[7, 8]", "[7, 9, 10]", "[11]"));
  const RawResponse cut = Put("songs", file.substr(0, file.size() - 1));
  EXPECT_EQ(cut.status, 400);
  EXPECT_THAT(ErrorOf(cut),
              HasSubstr("must have 4 bytes for each number of `shape`, (3, 3), "
                        "got 35 bytes"));
}

TEST_F(ItemsTest, RunningCallsKeepTheVersionThatIsReplaced) {
  Start({.allow_control = true});
  ASSERT_EQ(Put("songs", "[7, 8]\n[9]\n").status, 200);
  model_->Hold(true);
  RawClient first = Connect();
  first.Send(CallOf(R"({"items": "songs"})"));
  model_->AwaitStep();
  const RawResponse put = Put("songs", "[10]\n[11, 12]\n");
  EXPECT_EQ(ParseJson(put.body).value().at("version"), 2);
  EXPECT_EQ(Delete("songs").status, 200);
  model_->Hold(false);
  EXPECT_THAT(ItemsOf(first.Receive()), UnorderedElementsAre("[7, 8]", "[9]"));
  EXPECT_EQ(Send(CallOf(R"({"items": "songs"})")).status, 400);
}

TEST_F(ItemsTest, WhatChangesTheServerNeedsTheOption) {
  Start();
  EXPECT_EQ(Put("songs", "[7]").status, 403);
  EXPECT_THAT(ErrorOf(Delete("songs")), HasSubstr("--allow-control"));
  EXPECT_EQ(Get("/v1/items").status, 200);
}

TEST_F(ItemsTest, ABadCatalogueNamesTheLineAndChangesNothing) {
  Start({.allow_control = true});
  ASSERT_EQ(Put("songs", "[7]").status, 200);
  for (const auto& [lines, error] :
       std::vector<std::pair<std::string, std::string>>{
           {"[8]\n[9, \"a\"]\n",
            "line 2: item[1] must be an integer, got \"a\""},
           {"[8]\n{}\n", "line 2: item must be a list of token ids or a text"},
           {"[999999]", "line 1: item[0] must be a token id in [0, "},
           {"[8]\n[8, 2, 9]\n",
            "line 2: item[1], which is not its last token, must not be an id "
            "that ends the model's output, got 2"},
           {"", "there is no item"}}) {
    const RawResponse response = Put("songs", lines);
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_THAT(ErrorOf(response), HasSubstr(error));
  }
  for (const std::string coding : {"gzip", "identity, br"}) {
    const RawResponse encoded =
        Put("songs", "[8]\n", Concat("Content-Encoding: ", coding, "\r\n"));
    EXPECT_EQ(encoded.status, 415);
    EXPECT_EQ(encoded.Find("accept-encoding"), "identity");
    EXPECT_THAT(ErrorOf(encoded),
                HasSubstr(Concat("Content-Encoding must be identity or left "
                                 "out, as bodies are not decompressed, got \"",
                                 coding)));
  }
  const RawResponse name = Put("a%20b", "[7]");
  EXPECT_EQ(name.status, 400);
  EXPECT_THAT(ErrorOf(name), HasSubstr("the name of a catalogue must be 1 to "
                                       "64 letters, digits"));
  for (const std::string dots : {".", ".."}) {
    const RawResponse response = Put(dots, "[7]");
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(ErrorOf(response),
                HasSubstr("the name of a catalogue must not be \".\" or "
                          "\"..\", got \"" +
                          dots + '"'));
  }
  EXPECT_THAT(ItemsOf(Send(CallOf(R"({"items": "songs"})"))),
              UnorderedElementsAre("[7]"));
}

// A body of many pieces, beyond the limit of other bodies.
TEST_F(ItemsTest, AnItemsBodyMayBeLongerThanOthers) {
  ServerOptions options = {.allow_control = true};
  options.http.max_body_bytes = 10'000;
  Start(options);
  std::string lines;
  for (int i = 0; i < 20'000; ++i) {
    lines += Concat("[", 3 + i % 5000, ",", 3 + i / 5000, ",7]\n");
  }
  const RawResponse put = Put("songs", lines);
  ASSERT_EQ(put.status, 200) << put.body;
  EXPECT_EQ(ParseJson(put.body).value().at("num_items"), 20'000);
}

TEST_F(ItemsTest, ABodyBeyondTheMemoryOfCallsIsRefused) {
  ServerOptions options = {.allow_control = true};
  options.max_held_bytes = 8 << 20;
  Start(options);
  const RawResponse response =
      Put("songs", std::string(3 << 20, ' ') + "\n[7]\n");
  EXPECT_GE(response.status, 400);
  EXPECT_LT(response.status, 500);
  EXPECT_THAT(ErrorOf(response), HasSubstr("--max-held-bytes"));
  EXPECT_EQ(Put("songs", "[7]").status, 200);
}

TEST_F(ItemsTest, CataloguesHoldMemoryUntilTheyAreReplacedOrDeleted) {
  ServerOptions options = {.allow_control = true};
  options.max_held_bytes = 6 << 20;
  Start(options);
  std::string lines;
  for (int i = 0; i < 20'000; ++i) {
    lines += Concat("[", 3 + i % 5000, ",", 3 + i / 5000, ",7]\n");
  }
  for (int i = 0; i < 40; ++i) {
    const RawResponse put = Put("songs", lines);
    ASSERT_EQ(put.status, 200) << i << ": " << put.body;
  }
  RawResponse put;
  int num_put = 0;
  for (; num_put < 40; ++num_put) {
    put = Put(Concat("items", num_put), lines);
    if (put.status != 200) break;
  }
  EXPECT_GT(num_put, 3);
  ASSERT_EQ(put.status, 429) << num_put << " more: " << put.body;
  EXPECT_THAT(ErrorOf(put), HasSubstr("calls and catalogues of items hold "));
  EXPECT_THAT(
      ErrorOf(put),
      ContainsRegex(Concat("; ", num_put + 1,
                           " catalogues have [0-9]{7} of these bytes until "
                           "they are deleted or replaced")));
  EXPECT_EQ(Put("songs", lines).status, 429);
  EXPECT_EQ(Delete("items0").status, 200);
  EXPECT_EQ(Put("songs", lines).status, 200);
  EXPECT_EQ(Put("items1", "[7]").status, 200);
  EXPECT_EQ(Put("new", lines).status, 200);
}

TEST_F(ItemsTest, ThereIsALimitOfCatalogues) {
  Start({.allow_control = true});
  for (int i = 0; i < 64; ++i) {
    ASSERT_EQ(Put(Concat("items", i), "[7]").status, 200);
  }
  const RawResponse one_more = Put("more", "[7]");
  EXPECT_EQ(one_more.status, 400);
  EXPECT_THAT(ErrorOf(one_more), HasSubstr("there may be 64 catalogues"));
  EXPECT_EQ(Put("items0", "[8]").status, 200);
  EXPECT_EQ(Delete("items1").status, 200);
  EXPECT_EQ(Put("more", "[7]").status, 200);
}

}  // namespace
}  // namespace espalier::serve
