#include "trainer/report/events/event_file.h"

#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <vector>

#include "kernels/base/crc32c.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/report/events/event_reader.h"

namespace tandem::report {
namespace {

TEST(EventFileTest, ChecksumsAreThoseOfTheStandard) {
  EXPECT_EQ(Checksum("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xE3069283u);
  const std::string zeros(32, '\0');  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(0, zeros.data(), zeros.size()), 0x8A9136AAu);
}

TEST(EventFileTest, AReaderOfThePublishedFormatGetsAllBack) {
  const support::TempFolder folder;
  auto file = EventFile::Create(folder.path(), 1795957591);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->path(), folder / "events.out.tfevents.1795957591.tandem");
  const std::string long_tag(300, 't');
  ASSERT_TRUE((*file)->AddScalar(5, 1795957592.5, "train/loss", 7.2374948).ok());
  ASSERT_TRUE((*file)->AddScalar(int64_t{1} << 40, 2, long_tag, std::nan("")).ok());
  ASSERT_TRUE((*file)->AddScalar(0, 0, "\xff", 0).ok());
  ASSERT_TRUE((*file)->Flush().ok());

  const std::vector<std::string> records = ReadRecords((*file)->path());
  ASSERT_EQ(records.size(), 4u);
  auto version = Fields(records[0]);
  EXPECT_EQ(version[3], "brain.Event:2");
  EXPECT_EQ(Take<double>(version[1]), 1795957591);
  auto event = Fields(records[1]);
  EXPECT_EQ(Take<double>(event[1]), 1795957592.5);
  EXPECT_EQ(Take<uint64_t>(event[2]), 5u);
  auto value = Fields(Fields(event[5])[1]);
  EXPECT_EQ(value[1], "train/loss");
  EXPECT_EQ(Take<float>(value[2]), 7.2374948f);
  event = Fields(records[2]);
  EXPECT_EQ(Take<uint64_t>(event[2]), uint64_t{1} << 40);
  value = Fields(Fields(event[5])[1]);
  EXPECT_EQ(value[1], long_tag);
  EXPECT_TRUE(std::isnan(Take<float>(value[2])));
  EXPECT_EQ(Fields(Fields(Fields(records[3])[5])[1])[1], "\\xff") << "a string field is UTF-8";
}

TEST(EventFileTest, ARestartIsASessionsStart) {
  const support::TempFolder folder;
  auto file = EventFile::Create(folder.path(), 7);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->AddRestart(300, 8.5).ok());
  ASSERT_TRUE((*file)->Flush().ok());
  const std::vector<std::string> records = ReadRecords((*file)->path());
  ASSERT_EQ(records.size(), 2u);
  auto event = Fields(records[1]);
  EXPECT_EQ(Take<double>(event[1]), 8.5);
  EXPECT_EQ(Take<uint64_t>(event[2]), 300u);
  auto session = Fields(event[7]);  // Event.session_log
  EXPECT_EQ(Take<uint64_t>(session[1]), 1u) << "SessionLog.status is START";
}

TEST(EventFileTest, NamesSortByTime) {
  EXPECT_EQ(EventFileName(7), "events.out.tfevents.0000000007.tandem");
  EXPECT_LT(EventFileName(999999999), EventFileName(1795957591));
}

TEST(EventFileTest, ErrorsNameTheFile) {
  const support::TempFolder folder;
  const auto missing = EventFile::Create(folder / "none", 1);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(missing.status().message().find("none/events.out.tfevents.0000000001.tandem"),
            std::string::npos);
  std::error_code error;
  std::filesystem::create_symlink("/dev/full", folder / EventFileName(2), error);
  auto full = EventFile::Create(folder.path(), 2);
  ASSERT_TRUE(full.ok()) << "the first record fits the buffer";
  const absl::Status status = (*full)->Flush();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find((*full)->path()), std::string::npos);
}

}  // namespace
}  // namespace tandem::report
