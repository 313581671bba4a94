#include "trainer/checkpoint/safetensors.h"

#include <bit>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::checkpoint {

namespace {
static_assert(std::endian::native == std::endian::little,
              "tensors are little-endian and written as memory is");
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
}  // namespace

absl::StatusOr<FileDigest> WriteSafetensors(const std::string& path, const Safetensors& content) {
  SafetensorsHeader header;
  header.metadata = content.metadata;
  uint64_t place = 0;
  for (const NamedTensor& named : content.tensors) {
    const uint64_t end = place + named.tensor.num_bytes();
    header.tensors.push_back({named.name, named.tensor.dtype(), named.tensor.shape(), place, end});
    place = end;
  }
  const std::string json = PrintHeader(header);
  const uint64_t json_bytes = json.size();
  FileWriter writer(path);
  writer.Append(&json_bytes, sizeof json_bytes);
  writer.Append(json.data(), json.size());
  for (const NamedTensor& named : content.tensors)
    writer.Append(named.tensor.raw(), named.tensor.num_bytes());
  return writer.Finish();
}

namespace {

template <class... Text>
absl::Status Wrong(const std::string& path, const Text&... text) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", text...));
}

// Leaves `file` at the first byte of the data.
absl::StatusOr<SafetensorsHeader> ReadHeader(const std::string& path, std::ifstream& file) {
  if (!file) return Wrong(path, "cannot be read");
  const uint64_t file_bytes = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  uint64_t json_bytes = 0;
  if (file_bytes < sizeof json_bytes ||
      !file.read(reinterpret_cast<char*>(&json_bytes), sizeof json_bytes)) {
    return Wrong(path, "ends within the length of its header");
  }
  if (json_bytes > kMaxHeaderBytes || json_bytes > file_bytes - sizeof json_bytes) {
    return Wrong(path, "claims a header of ", json_bytes, " bytes in a file of ", file_bytes);
  }
  std::string json(json_bytes, '\0');
  if (!file.read(json.data(), static_cast<std::streamsize>(json_bytes)))
    return Wrong(path, "cannot be read");
  auto header = ParseHeader(json, file_bytes - sizeof json_bytes - json_bytes);
  if (!header.ok()) return Wrong(path, header.status().message());
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  return ReadHeader(path, file);
}

absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadHeader(path, file));
  Safetensors content;
  content.metadata = header.metadata;
  for (const TensorEntry& entry : header.tensors) {
    Tensor tensor = Tensor::Empty(entry.shape, entry.dtype);
    if (!file.read(static_cast<char*>(tensor.raw()),
                   static_cast<std::streamsize>(tensor.num_bytes()))) {
      return Wrong(path, "cannot be read");
    }
    content.tensors.push_back({entry.name, std::move(tensor)});
  }
  return content;
}

}  // namespace tandem::checkpoint
