// Named tensors in one file, in the safetensors format: u64 length of the header, header (safetensors_header.h), data without
// holes, little-endian. Any program that knows the format reads what we write.
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

// ResourceExhausted names the file.
absl::StatusOr<FileDigest> WriteSafetensors(const std::string& path, const Safetensors& content);
// These trust nothing in the file. FailedPrecondition names it and says what is wrong.
absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path);
// What it holds, without the values.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path);

}  // namespace tandem::checkpoint
