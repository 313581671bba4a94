#include "trainer/checkpoint/safetensors.h"

#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace tandem::checkpoint {

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

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path, SafetensorsFile::Access::READ));
  return file->header();
}

absl::StatusOr<Safetensors> ReadSafetensors(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path, SafetensorsFile::Access::READ));
  Safetensors content;
  content.metadata = file->header().metadata;
  for (const TensorEntry& entry : file->header().tensors) {
    const Tensor tensor = Tensor::Empty(entry.shape, entry.dtype);
    RETURN_IF_ERROR(file->Read(entry, 0, tensor.num_elements(), tensor.raw()));
    content.tensors.push_back({entry.name, tensor});
  }
  return content;
}

}  // namespace tandem::checkpoint
