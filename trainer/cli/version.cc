#include "trainer/cli/version.h"

#include <algorithm>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/device.h"
#include "kernels/cpu/matmul/onednn_matmul.h"
#include "kernels/cpu/vector/vectorise.h"
#include "trainer/cli/report.h"
#include "trainer/comm/device/nccl_group.h"

namespace tandem::cli {

extern const char kCommit[];  // commit.cmake

namespace {

std::string CpuText() {
  const kernels::InstructionSet widest = kernels::WidestInstructionSet();
  const char* vectors = widest == kernels::InstructionSet::AVX512 ? "AVX-512"
                        : widest == kernels::InstructionSet::AVX2 ? "AVX2"
                                                                  : "baseline";
  std::string text = absl::StrCat(vectors, ", f32 products ",
                                  kernels::MatmulImplementation({.m = 64, .n = 64, .k = 64}));
  if (kernels::MatmulTakesPanels(DType::BF16)) {
    const kernels::MatmulShape bf16{
        .m = 64, .n = 64, .k = 64, .operand = DType::BF16, .panels = true};
    absl::StrAppend(&text, ", bf16 ", kernels::MatmulImplementation(bf16));
  }
  return text;
}

std::string CudaText() {
  const CudaInfo info = QueryCuda();
  if (!info.built_in) return "not in this binary";
  const std::string version =
      absl::StrCat(info.runtime_version / 1000, ".", info.runtime_version % 1000 / 10);
  if (info.num_devices == 0) return absl::StrCat(version, ", no device: ", info.why_none);
  return absl::StrCat(version, ", ", info.num_devices,
                      info.num_devices == 1 ? " device" : " devices");
}

std::string NcclText() {
  const auto version = comm::FindNccl();
  if (!version.ok()) return std::string(version.status().message());
  return absl::StrCat(*version / 10000, ".", *version / 100 % 100, ".", *version % 100);
}

}  // namespace

std::string ProcessorText() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown";
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) {
      name = line.substr(std::min(line.find(": ") + 2, line.size()));
      break;
    }
  }
  return absl::StrCat(name, ", ", std::thread::hardware_concurrency(), " logical processors");
}

report::RunProgram ThisProgram() {
  return {.version = absl::StrCat("tandem ", TANDEM_VERSION, ", commit ", kCommit),
          .environment = {{"processor", ProcessorText()},
                          {"CPU kernels", CpuText()},
                          {"CUDA", CudaText()},
                          {"NCCL", NcclText()}}};
}

report::RunProgram ThisProgramOn(Device device) {
  report::RunProgram program = ThisProgram();
  program.environment.insert(program.environment.begin(), {"device", DeviceName(device)});
  return program;
}

std::string VersionText() {
  const report::RunProgram program = ThisProgram();
  std::string text = program.version;
  for (const auto& [name, what] : program.environment)
    absl::StrAppend(&text, "\n", name, ": ", what);
  return text;
}

}  // namespace tandem::cli
