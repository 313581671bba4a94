// Runs one target, TANDEM_FUZZ_TARGET, under libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tandem::fuzz::Target target = tandem::fuzz::TANDEM_FUZZ_TARGET();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
