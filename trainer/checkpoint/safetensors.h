// Named tensors in one file, in the safetensors format: u64 length of the header, header
// (safetensors_header.h), data without gaps, little-endian. Every program that knows the format can
// read these files.
// Thread rule: free functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/checked_file.h"
#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/tensor/tensor.h"

namespace tandem::checkpoint {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct Safetensors {
  std::vector<NamedTensor> tensors;  // distinct names
  std::map<std::string, std::string> metadata;
};

// Writes a file. ResourceExhausted names the file.
absl::StatusOr<FileDigest> WriteSafetensors(const std::string& path, const Safetensors& content);
// Both readers trust nothing in the file. FailedPrecondition names the file and what is wrong.
absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path);
// Reads the names, types and shapes, without the values.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path);

}  // namespace tandem::checkpoint
