// Files of clients: storage, and access by owner.
#include "jobs/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/fault_injection.h"
#include "jobs/record.h"
#include "tests/jobs/job_folder.h"

namespace espalier::jobs {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

size_t NumEntries(const JobFolder& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder.path() + "/files")) {
    ++count;
  }
  return count;
}

TEST(FileStoreTest, FilesOutliveTheStore) {
  const JobFolder folder;
  auto files = folder.OpenFiles();
  const openai::StoredFile added = AddFile(files.get(), "a\nb\n", "me").value();
  EXPECT_THAT(FileStore::Open(folder.path(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another server uses")));
  files.reset();
  files = folder.OpenFiles();
  const auto found = files->Find("me", added.id);
  ASSERT_OK(found);
  EXPECT_EQ(found->num_bytes, 4);
  EXPECT_EQ(found->filename, "in.jsonl");
  EXPECT_EQ(ReadWhole(files->PathOf(added.id)), "a\nb\n");
  ASSERT_OK(files->Remove("me", added.id));
  EXPECT_EQ(NumEntries(folder), 0);
  files.reset();
  EXPECT_TRUE(folder.OpenFiles()->List("me").empty());
}

TEST(FileStoreTest, OthersFindNothing) {
  const JobFolder folder;
  const auto files = folder.OpenFiles();
  const std::string id = AddFile(files.get(), "a", "me")->id;
  for (const std::string owner : {"", "you", "m"}) {
    EXPECT_THAT(files->Find(owner, id),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(id)));
    EXPECT_THAT(files->Remove(owner, id),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(id)));
    EXPECT_TRUE(files->List(owner).empty());
  }
  EXPECT_EQ(files->List("me").size(), 1);
}

TEST(FileStoreTest, NamesOfClientsAreNoPaths) {
  const JobFolder folder;
  auto files = folder.OpenFiles();
  for (const std::string& name :
       {std::string("../../x"), std::string("/etc/x"), std::string("a\0b", 3),
        std::string("x\n\"y"), std::string(1000, 'x'), std::string("é")}) {
    const auto added = AddFile(files.get(), "a", "", name);
    ASSERT_OK(added) << name;
    EXPECT_EQ(added->filename, name);
    EXPECT_TRUE(IsId("file-", added->id));
  }
  EXPECT_EQ(NumEntries(folder), 12);
  files.reset();
  files = folder.OpenFiles();
  EXPECT_EQ(files->List("").size(), 6);
  for (const std::string id : {"", "file-", "../files/x", "file-../../../../x",
                               "file-0123456789abcdef0123456789abcdeG"}) {
    EXPECT_FALSE(files->Find("", id).ok()) << id;
  }
}

TEST(FileStoreTest, LimitsHoldAndAnUploadThatIsDroppedLeavesNothing) {
  const JobFolder folder;
  const auto files = folder.OpenFiles(
      {.max_files = 2, .max_file_bytes = 10, .max_total_bytes = 15});
  EXPECT_THAT(AddFile(files.get(), std::string(11, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("file must have at most 10 bytes")));
  const auto first = AddFile(files.get(), std::string(10, 'x'));
  ASSERT_OK(first);
  EXPECT_THAT(AddFile(files.get(), std::string(6, 'x')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("10 bytes of files, and at most 15 may")));
  EXPECT_EQ(NumEntries(folder), 2);
  ASSERT_OK(AddFile(files.get(), std::string(5, 'x')));
  EXPECT_THAT(AddFile(files.get(), ""),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("at most 2 may be (--max-files)")));
  ASSERT_OK(files->Remove("", first->id));
  EXPECT_OK(AddFile(files.get(), std::string(10, 'x')));
}

// Room that a failed write reserved must not be lost.
TEST(FileStoreTest, UploadWhoseWriteFailsTakesNoRoom) {
  const JobFolder folder;
  const auto files = folder.OpenFiles({.max_total_bytes = 10});
  for (int i = 0; i < 3; ++i) {
    const auto upload = files->BeginUpload();
    ASSERT_OK(upload);
    const InjectedFault fault(FaultPoint::kWriteFile, 0);
    EXPECT_FALSE((*upload)->Append("0123456789").ok());
  }
  EXPECT_OK(AddFile(files.get(), "0123456789"));
}

// Shares hold after a restart, too: records name the tenant.
TEST(FileStoreTest, NoTenantTakesAllRoom) {
  const JobFolder folder;
  const FileLimits limits = {.max_files = 10, .max_total_bytes = 1'000};
  auto files = folder.OpenFiles(limits);
  std::vector<std::string> ids;
  for (int i = 0; i < 9; ++i) {
    const auto added = AddFile(files.get(), "a", "me");
    ASSERT_OK(added) << i;
    ids.push_back(added->id);
  }
  for (const bool restarts : {false, true}) {
    if (restarts) {
      files.reset();
      files = folder.OpenFiles(limits);
    }
    EXPECT_THAT(AddFile(files.get(), "a", "me"),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("this caller has 9 of 9 files, where at "
                                   "most 10 may be (--max-files)")));
    const auto other = AddFile(files.get(), "a", "you");
    ASSERT_OK(other);
    ASSERT_OK(files->Remove("you", other->id));
  }
  for (const std::string& id : ids) ASSERT_OK(files->Remove("me", id));
  EXPECT_THAT(AddFile(files.get(), std::string(950, 'x'), "me"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("0 of 0 bytes of files")));
  ASSERT_OK(AddFile(files.get(), std::string(880, 'x'), "me"));
  EXPECT_OK(AddFile(files.get(), std::string(100, 'x'), "you"));
}

TEST(FileStoreTest, LimitsMayBeAsLargeAsNumbersGo) {
  const JobFolder folder;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t most : {int64_t{1} << 60, kMost}) {
    const auto files =
        folder.OpenFiles({.max_files = most, .max_total_bytes = most});
    EXPECT_OK(AddFile(files.get(), "a", "me")) << most;
  }
}

TEST(FileStoreTest, HeldFilesStay) {
  const JobFolder folder;
  const auto files = folder.OpenFiles();
  const std::string id = AddFile(files.get(), "a")->id;
  ASSERT_OK(files->Hold("", id));
  EXPECT_THAT(files->Remove("", id),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cancel the batch first")));
  files->Release(id);
  EXPECT_OK(files->Remove("", id));
}

TEST(FileStoreTest, RecordThatCannotBeReadIsSetAside) {
  const JobFolder folder;
  auto files = folder.OpenFiles();
  const std::string damaged = AddFile(files.get(), "abc")->id;
  const std::string whole = AddFile(files.get(), "def")->id;
  const std::string path = files->PathOf(damaged) + ".json";
  files.reset();
  const std::string good = ReadWhole(path);
  std::vector<std::string> records = DamagedRecords(good);
  records.push_back(good.substr(0, good.find("\"bytes\": ")) + "\"bytes\": -" +
                    good.substr(good.find("\"bytes\": ") + 9));
  for (const std::string& record : records) {
    WriteWhole(path, record);
    std::vector<std::string> warnings;
    const auto opened = FileStore::Open(
        folder.path(), {},
        [&](const std::string& line) { warnings.push_back(line); });
    ASSERT_OK(opened) << record;
    ASSERT_EQ(warnings.size(), 1) << record;
    EXPECT_THAT(warnings[0], HasSubstr(path));
    EXPECT_THAT(warnings[0], ::testing::EndsWith("; it is left as it is"));
    EXPECT_EQ(warnings[0].find('\n'), std::string::npos);
    ASSERT_EQ((*opened)->List("").size(), 1);
    EXPECT_EQ((*opened)->List("")[0].id, whole);
    EXPECT_FALSE((*opened)->Find("", damaged).ok());
    EXPECT_EQ(ReadWhole(path), record);
    EXPECT_OK(AddFile(opened->get(), "more", "you"));
  }
  // Its content is still there.
  WriteWhole(path, good);
  files = folder.OpenFiles();
  ASSERT_OK(files->Find("", damaged));
  EXPECT_EQ(ReadWhole(files->PathOf(damaged)), "abc");
}

// A disk that fails at any operation leaves a file that is there, or is not.
TEST(FileStoreTest, FailureAtAnyWriteLeavesAFileOrNone) {
  bool has_struck = true;
  for (int num_good = 0; has_struck; ++num_good) {
    const JobFolder folder;
    bool is_added = false;
    {
      const auto files = folder.OpenFiles();
      const InjectedFault fault(FaultPoint::kWriteFile, num_good);
      is_added = AddFile(files.get(), "abc").ok();
      has_struck = fault.has_struck();
      EXPECT_EQ(files->List("").size(), is_added ? 1 : 0) << num_good;
    }
    const auto files = folder.OpenFiles();
    const auto listed = files->List("");
    if (is_added) {
      EXPECT_EQ(listed.size(), 1);
    }
    for (const openai::StoredFile& file : listed) {
      EXPECT_EQ(ReadWhole(files->PathOf(file.id)), "abc") << num_good;
    }
    if (listed.empty()) {
      EXPECT_EQ(NumEntries(folder), 0) << num_good;
    }
    EXPECT_LT(num_good, 100);
  }
}

}  // namespace
}  // namespace espalier::jobs
