// The JSON header of a safetensors file (github.com/huggingface/safetensors): names, element types,
// shapes and places of tensors, and a map of strings. Text only, no files. The parser accepts
// exactly what the format allows, because anybody may have written the bytes.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/array_view.h"

namespace tandem::checkpoint {

struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  uint64_t begin = 0, end = 0;  // bytes after the header
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Returns JSON, padded with spaces to a multiple of 8 bytes.
std::string PrintHeader(const SafetensorsHeader& header);

// Returns the tensors in the order of their bytes. InvalidArgument says what is wrong, also if the
// tensors do not fill `data_bytes` exactly, one after another.
absl::StatusOr<SafetensorsHeader> ParseHeader(std::string_view json, uint64_t data_bytes);

}  // namespace tandem::checkpoint
