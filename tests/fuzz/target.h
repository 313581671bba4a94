// What is fuzzed: functions that read bytes which anybody may have written. Each file here but the programs has one target. It
// returns, whatever it is given: a crash, a failed CHECK, a sanitizer's report or an answer that does not come is a find, and so is a call
// that takes more memory than its input may cost (memory_use.h).
// Thread rule: one call at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::fuzz {

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
  // Inputs to begin with: what our own writers make.
  std::vector<std::string> (*seeds)();
};

// Field by field: rpc/payload.h against protobuf's parser and against itself, with the message in any number of slices.
Target MessageFields();
// ps/wire/wire_codec.h: ids that ascend, and rows in every format.
Target IdsAndRows();
// Messages to the handlers of an EmbeddingService with a few tables, one after the other.
Target ServiceCalls();
// To the same, megabytes that are made to cost more than they are.
void SendHostileCalls();
// ps/server/checkpoint.h and ps/server/table_files.h: a file of saved rows.
Target RowFile();
// The header of a safetensors file.
Target TensorHeader();

inline std::vector<Target> AllTargets() { return {MessageFields(), IdsAndRows(), ServiceCalls(), RowFile(), TensorHeader()}; }

}  // namespace tandem::fuzz
