#include "trainer/report/events/event_file.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tandem::report {

namespace {

// Field numbers of Event, Summary, Summary.Value and SessionLog.
enum EventField { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum SummaryField { VALUE = 1 };
enum ValueField { TAG = 1, SIMPLE_VALUE = 2 };
enum SessionField { STATUS = 1 };
constexpr uint64_t kStart = 1;  // SessionLog.SessionStatus
// Wire types of protobuf's encoding.
enum WireType { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

template <typename Number>
void AppendFixed(Number number, std::string* text) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));  // x86-64 is little-endian, as the format is
  text->append(bytes, sizeof(Number));
}

void AppendVarint(uint64_t number, std::string* text) {
  for (; number >= 0x80; number >>= 7) *text += static_cast<char>(number | 0x80);
  *text += static_cast<char>(number);
}

void AppendKey(int field, WireType type, std::string* text) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | type, text);
}

void AppendBytes(int field, std::string_view bytes, std::string* text) {
  AppendKey(field, BYTES, text);
  AppendVarint(bytes.size(), text);
  text->append(bytes);
}

uint32_t MaskedChecksum(std::string_view bytes) {
  const uint32_t crc = Crc32c(0, bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

std::string TimedEvent(double time) {
  std::string event;
  AppendKey(WALL_TIME, FIXED64, &event);
  AppendFixed(time, &event);
  return event;
}

std::string StepEvent(int64_t step, double time) {
  std::string event = TimedEvent(time);
  AppendKey(STEP, VARINT, &event);
  AppendVarint(static_cast<uint64_t>(step), &event);
  return event;
}

absl::Status WriteError(const std::string& path) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

std::string EventFileName(int64_t seconds) {
  return absl::StrFormat("%s%010d.tandem", kEventFilePrefix, seconds);
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder,
                                                             int64_t seconds) {
  const std::string path = absl::StrCat(folder, "/", EventFileName(seconds));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return WriteError(path);
  std::unique_ptr<EventFile> events(new EventFile(path, file));
  std::string event = TimedEvent(static_cast<double>(seconds));
  AppendBytes(FILE_VERSION, "brain.Event:2", &event);
  RETURN_IF_ERROR(events->AddRecord(event));
  return events;
}

absl::Status EventFile::AddScalar(int64_t step, double time, std::string_view tag, double value) {
  std::string scalar;
  AppendBytes(TAG, Printable(tag), &scalar);  // a string field must be UTF-8
  AppendKey(SIMPLE_VALUE, FIXED32, &scalar);
  AppendFixed(static_cast<float>(value), &scalar);
  std::string summary;
  AppendBytes(VALUE, scalar, &summary);
  std::string event = StepEvent(step, time);
  AppendBytes(SUMMARY, summary, &event);
  return AddRecord(event);
}

absl::Status EventFile::AddRestart(int64_t step, double time) {
  std::string session;
  AppendKey(STATUS, VARINT, &session);
  AppendVarint(kStart, &session);
  std::string event = StepEvent(step, time);
  AppendBytes(SESSION_LOG, session, &event);
  return AddRecord(event);
}

absl::Status EventFile::AddRecord(std::string_view event) {
  std::string record;
  AppendFixed(static_cast<uint64_t>(event.size()), &record);
  AppendFixed(MaskedChecksum(record), &record);
  record += event;
  AppendFixed(MaskedChecksum(event), &record);
  const bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  return written ? absl::OkStatus() : WriteError(path_);
}

absl::Status EventFile::Flush() {
  return std::fflush(file_.get()) == 0 ? absl::OkStatus() : WriteError(path_);
}

}  // namespace tandem::report
