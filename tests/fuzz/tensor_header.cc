#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "tests/fuzz/memory_use.h"
#include "tests/fuzz/target.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace tandem::fuzz {
namespace {

// Input: four bytes for the number of bytes that follow the header, then the header.
void Run(std::string_view bytes) {
  uint32_t data_bytes = 0;
  if (bytes.size() < sizeof data_bytes) return;
  std::memcpy(&data_bytes, bytes.data(), sizeof data_bytes);
  const auto header = Within(bytes.size(), kOtherFactor, [&] {
    return checkpoint::ParseHeader(bytes.substr(sizeof data_bytes), data_bytes);
  });
  if (!header.ok()) return;
  uint64_t end = 0;
  for (const checkpoint::TensorEntry& tensor : header->tensors) {
    TANDEM_CHECK_EQ(tensor.begin, end);
    TANDEM_CHECK_LE(tensor.begin, tensor.end);
    end = tensor.end;
  }
  TANDEM_CHECK_EQ(end, uint64_t{data_bytes});
  // A parsed header, printed, parses to the same header.
  const std::string printed = checkpoint::PrintHeader(*header);
  const auto again = checkpoint::ParseHeader(printed, data_bytes);
  TANDEM_CHECK(again.ok()) << again.status() << " " << printed;
  TANDEM_CHECK(checkpoint::PrintHeader(*again) == printed);
}

std::vector<std::string> Seeds() {
  checkpoint::SafetensorsHeader header;
  header.tensors = {{"layer.weight", DType::F32, {2, 3}, 0, 24},
                    {"layer \"b\"", DType::BF16, {4}, 24, 32}};
  header.tensors.push_back({"", DType::I64, {}, 32, 40});
  header.metadata = {{"format", "pt"}, {"caf\xc3\xa9", "\n\t\\"}};
  const char* const escapes =
      R"({"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"__metadata__":{"k":"\u00e9\ud83d\ude00"}})";
  return {absl::StrCat(std::string("\x28\0\0\0", 4), checkpoint::PrintHeader(header)),
          absl::StrCat(std::string(4, '\0'), "{}"),
          absl::StrCat(std::string("\x04\0\0\0", 4), escapes)};
}

}  // namespace

Target TensorHeader() { return {"tensor_header", Run, Seeds}; }

}  // namespace tandem::fuzz
