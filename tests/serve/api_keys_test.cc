#include "serve/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>

#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;
using testing::ScratchDirectory;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ApiKeysTest, AKeyIsShownAsABearerTokenOrAsAPassword) {
  const ApiKeys keys({"first-key", "second-key"});
  EXPECT_EQ(keys.Find("Bearer first-key"), 0);
  EXPECT_EQ(keys.Find("bearer  second-key "), 1);
  // With Basic authentication the password is the key, whatever the user name.
  EXPECT_EQ(keys.Find("Basic YW55Ym9keTpzZWNvbmQta2V5"), 1);
}

TEST(ApiKeysTest, NothingElseIsAKey) {
  const ApiKeys keys({"first-key", "second-key"});
  for (const char* const header :
       {"", "Bearer", "Bearer ", "first-key", "Bearer first-ke",
        "Bearer first-keyy", "Bearer First-key", "Bearer first-keyfirst-key",
        "Bearer first-key second-key", "Digest first-key", "Basic first-key",
        "Basic Zmlyc3Qta2V5" /* no colon */, "Basic Og==" /* ":" */}) {
    EXPECT_EQ(keys.Find(header), std::nullopt) << header;
  }
}

TEST(ApiKeysTest, AFileHasOneALine) {
  const ScratchDirectory scratch;
  const std::string path =
      scratch.Write("keys", "# of Monday\n\n  first-key\r\nsecond-key");
  ASSERT_OK_AND_ASSIGN(const ApiKeys keys, ApiKeys::Read(path));
  EXPECT_EQ(keys.Find("Bearer first-key"), 0);
  EXPECT_EQ(keys.Find("Bearer second-key"), 1);
  EXPECT_EQ(keys.Find("Bearer # of Monday"), std::nullopt);
}

TEST(ApiKeysTest, AByteOrderMarkIsNoPartOfTheFirstKey) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("keys",
                                         "\xEF\xBB\xBF"
                                         "first-key\nsecond-key\n");
  ASSERT_OK_AND_ASSIGN(const ApiKeys keys, ApiKeys::Read(path));
  EXPECT_EQ(keys.Find("Bearer first-key"), 0);
  EXPECT_EQ(keys.Find("Bearer second-key"), 1);
}

TEST(ApiKeysTest, APipeIsReadToItsEnd) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "first-key\nsecond-key\n"; });
  const absl::StatusOr<ApiKeys> keys = ApiKeys::Read(path);
  writer.join();
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->Find("Bearer second-key"), 1);
}

TEST(ApiKeysTest, ABadKeyIsRefusedByItsLine) {
  const ScratchDirectory scratch;
  const auto read = [&](const std::string& text) {
    return ApiKeys::Read(scratch.Write("keys", text)).status();
  };
  EXPECT_THAT(read("long-enough\nshort\n"),
              StatusIs(kInvalid, HasSubstr("keys:2: an API key must have at "
                                           "least 8 bytes, this one has 5")));
  EXPECT_THAT(
      read("first-key\nsecond-key\n\nfirst-key\n"),
      StatusIs(kInvalid,
               HasSubstr("keys:4: this API key is in an earlier line")));
  EXPECT_THAT(read("has a space"), StatusIs(kInvalid, HasSubstr("keys:1")));
  EXPECT_THAT(read("schlüssel"), StatusIs(kInvalid, HasSubstr("ASCII")));
  EXPECT_THAT(read("# nothing\n"), StatusIs(kInvalid, HasSubstr("no API key")));
  EXPECT_THAT(ApiKeys::Read(scratch.path("none")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(ApiKeys::Of("", "KEY"), StatusIs(kInvalid, HasSubstr("KEY: ")));
}

}  // namespace
}  // namespace espalier::serve
