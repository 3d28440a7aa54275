#include "base/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/fault_injection.h"
#include "base/file.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  return ReadFile(path, 1'000).value();
}

TEST(DurableFileTest, ReplacedFileHasTheOldContentOrTheNew) {
  bool has_struck = true;
  for (int num_good = 0; has_struck; ++num_good) {
    const ScratchDirectory scratch;
    const std::string path = scratch.Write("f", "old");
    absl::Status replaced;
    {
      const InjectedFault fault(FaultPoint::kWriteFile, num_good);
      replaced = ReplaceFile(path, "new");
      has_struck = fault.has_struck();
    }
    const std::string content = ContentOf(path);
    EXPECT_TRUE(content == "new" || (content == "old" && !replaced.ok()));
    EXPECT_EQ(replaced.ok(), !has_struck) << num_good;
    EXPECT_LT(num_good, 20);
  }
}

TEST(DurableFileTest, AppendedFileIsKeptUpToItsSize) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("f", "abcdef");
  ASSERT_OK_AND_ASSIGN(AppendedFile file, AppendedFile::Open(path, 2));
  EXPECT_OK(file.Append("xyz"));
  EXPECT_OK(file.Sync());
  EXPECT_EQ(file.size(), 5);
  EXPECT_EQ(ContentOf(path), "abxyz");
}

// Else a file that was synced may be gone after the machine has ended.
TEST(DurableFileTest, AppendedFileHasItsNameOnTheDiskOnceItIsOpen) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("f");
  constexpr int kOpenAndCut = 2;
  const InjectedFault fault(FaultPoint::kWriteFile, kOpenAndCut);
  EXPECT_THAT(AppendedFile::Open(path, 0),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("cannot sync " + scratch.path())));
}

TEST(DurableFileTest, AppendThatFailsLeavesTheFileAsItWas) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("f");
  ASSERT_OK_AND_ASSIGN(AppendedFile file, AppendedFile::Open(path, 0));
  ASSERT_OK(file.Append("ab"));
  {
    const InjectedFault fault(FaultPoint::kWriteFile, 0);
    EXPECT_THAT(file.Append("wxyz"),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("cannot write " + path)));
  }
  EXPECT_EQ(file.size(), 2);
  EXPECT_EQ(ContentOf(path), "ab");
  EXPECT_OK(file.Append("cd"));
  EXPECT_EQ(file.size(), 4);
  EXPECT_EQ(ContentOf(path), "abcd");
}

}  // namespace
}  // namespace espalier
