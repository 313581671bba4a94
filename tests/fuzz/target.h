// Fuzz targets: functions that read bytes from untrusted writers. Each file here except the
// programs holds one target.
// A target returns for every input. A crash, a failed CHECK, a sanitizer's report or a missing
// answer is a find.
// A call that takes more memory than its input may cost is a find too (memory_use.h).
// Thread rule: one call at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::fuzz {

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
  // Returns inputs to begin with: the output of our own writers.
  std::vector<std::string> (*seeds)();
};

// Compares rpc/payload.h with protobuf's parser, field by field, and with itself, for any slicing
// of the message.
Target MessageFields();
// ps/wire/wire_codec.h: ascending ids, and rows in every format.
Target IdsAndRows();
// Sends messages one by one to the handlers of an EmbeddingService with a few tables.
Target ServiceCalls();
// Sends that service messages of megabytes that are built to cost more than their size.
void SendHostileCalls();
// ps/server/checkpoint.h and ps/server/table_files.h: a file of saved rows.
Target RowFile();
// The header of a safetensors file.
Target TensorHeader();

inline std::vector<Target> AllTargets() {
  return {MessageFields(), IdsAndRows(), ServiceCalls(), RowFile(), TensorHeader()};
}

}  // namespace tandem::fuzz
