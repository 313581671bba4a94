// An independent reader of the published formats of event files: TensorFlow's records with their
// checksums, protobuf's encoding, and what TensorBoard makes of a run that goes on.
// Thread rule: one thread. A file that is not as published fails the test.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace tandem::report {

// RFC 3720's checksum, a bit at a time.
inline uint32_t Checksum(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

inline uint32_t Unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return rotated >> 17 | rotated << 15;
}

template <typename Number>
Number Take(std::string& bytes) {
  Number number{};
  if (bytes.size() < sizeof(Number)) {
    ADD_FAILURE() << "the file ends inside a number";
    bytes.clear();
    return number;
  }
  std::memcpy(&number, bytes.data(), sizeof(Number));
  bytes.erase(0, sizeof(Number));
  return number;
}

inline std::string TakeBytes(std::string& bytes, uint64_t size) {
  EXPECT_LE(size, bytes.size());
  const std::string taken = bytes.substr(0, size);
  bytes.erase(0, size);
  return taken;
}

inline uint64_t TakeVarint(std::string& bytes) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = Take<uint8_t>(bytes);
    number |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return number;
  }
}

inline std::vector<std::string> ReadRecords(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const std::string length = TakeBytes(bytes, 8);
    EXPECT_EQ(Unmasked(Take<uint32_t>(bytes)), Checksum(length));
    std::string rest = length;
    records.push_back(TakeBytes(bytes, Take<uint64_t>(rest)));
    EXPECT_EQ(Unmasked(Take<uint32_t>(bytes)), Checksum(records.back()));
  }
  return records;
}

// The fields of a message: numbers as their bytes.
inline std::map<uint64_t, std::string> Fields(std::string bytes) {
  std::map<uint64_t, std::string> fields;
  while (!bytes.empty()) {
    const uint64_t key = TakeVarint(bytes);
    std::string& field = fields[key >> 3];
    switch (key & 7) {
      case 0: {
        const uint64_t number = TakeVarint(bytes);
        field.assign(reinterpret_cast<const char*>(&number), sizeof(number));
        break;
      }
      case 1:
        field = TakeBytes(bytes, 8);
        break;
      case 2:
        field = TakeBytes(bytes, TakeVarint(bytes));
        break;
      case 5:
        field = TakeBytes(bytes, 4);
        break;
      default:
        ADD_FAILURE() << "unknown wire type " << (key & 7);
        return fields;
    }
  }
  return fields;
}

// The values of each tag by step that TensorBoard shows of a folder. It reads the files in the
// order of their names. A session's start drops all values of its step and of later ones.
inline std::map<std::string, std::multimap<uint64_t, float>> ShownScalars(
    const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find("tfevents") != std::string::npos)
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::map<std::string, std::multimap<uint64_t, float>> shown;
  for (const std::string& path : paths) {
    for (const std::string& record : ReadRecords(path)) {
      auto event = Fields(record);
      if (event.count(2) == 0) continue;  // the version
      const auto step = Take<uint64_t>(event[2]);
      if (event.count(7) > 0) {
        for (auto& [tag, values] : shown) values.erase(values.lower_bound(step), values.end());
        continue;
      }
      auto value = Fields(Fields(event[5])[1]);
      shown[value[1]].emplace(step, Take<float>(value[2]));
    }
  }
  return shown;
}

}  // namespace tandem::report
