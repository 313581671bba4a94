// Checkpoints that hold a NaN, as versions before train.non_finite wrote them. Every checksum is
// right.
#pragma once

#include <cmath>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "kernels/base/checked_file.h"
#include "proto/checkpoint.pb.h"
#include "tests/trainer/checkpoint/file_damage.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace tandem::checkpoint {

// Sets the first number of a dense tensor to NaN. `folder` is a checkpoint.
inline void SpoilTensor(const std::string& folder, const std::string& name) {
  CheckpointManifest manifest = ReadManifest(folder).value();
  const std::string path = folder + "/" + manifest.dense().name();
  const Safetensors content = ReadSafetensors(path).value();
  bool found = false;
  for (const NamedTensor& named : content.tensors) {
    if (named.name == name) named.tensor.Set(0, std::nan(""));
    found |= named.name == name;
  }
  EXPECT_TRUE(found) << name;
  const FileDigest digest = WriteSafetensors(path, content).value();
  manifest.mutable_dense()->set_crc32c(digest.crc32c);
  EXPECT_TRUE(WriteManifest(folder, manifest).ok());
}

// Sets the last number of the first file of rows to NaN.
inline void SpoilRow(const std::string& folder) {
  CheckpointManifest manifest = ReadManifest(folder).value();
  SavedFile& file = *manifest.mutable_rows(0);
  std::string bytes = ReadBytes(folder + "/" + file.name());
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  FileWriter writer(folder + "/" + file.name());
  writer.Append(bytes.data(), bytes.size());
  file.set_crc32c(writer.Finish()->crc32c);
  EXPECT_TRUE(WriteManifest(folder, manifest).ok());
}

}  // namespace tandem::checkpoint
