#include "tests/architecture/include_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kFolders = {"proto", "kernels", "rpc", "ps", "trainer", "examples", "tests"};

// A room is a folder or a file. It may include itself and what its arrows point to; inside trainer also what those may
// include in turn.
struct Room {
  std::string_view path;
  std::vector<std::string_view> arrows;
  bool anything = false;  // the whole house but the tests
};

const std::vector<Room>& Rooms() {
  static const std::vector<Room>* const rooms = new std::vector<Room>{
      {"proto", {}},
      {"kernels", {}},
      {"rpc", {"kernels/base", "proto"}},
      {"ps", {"rpc", "kernels", "proto"}},
      {"trainer/main.cc", {}, true},
      {"trainer/cli", {}, true},
      {"trainer/loop", {"trainer/models", "trainer/data", "trainer/checkpoint"}},
      {"trainer/models", {"trainer/parallel"}},
      {"trainer/data", {"trainer/parallel"}},
      {"trainer/checkpoint", {"trainer/parallel"}},
      {"trainer/parallel", {"trainer/remote"}},
      {"trainer/remote", {"trainer/comm", "trainer/nn", "trainer/optim", "ps/caching/trainer_exchange.h"}},
      {"trainer/comm", {"rpc", "kernels/base"}},
      {"trainer/nn", {"trainer/autograd"}},
      {"trainer/optim", {"trainer/autograd"}},
      {"trainer/autograd", {"trainer/tensor"}},
      {"trainer/tensor", {"ps/client/client.h", "rpc", "kernels", "proto"}},
      {"examples", {"trainer", "ps/client/client.h", "rpc", "kernels/base/status_macros.h"}},
      {"tests", {"tests"}, true},
  };
  return *rooms;
}

// A library whose headers only some places may see. Tests may see them all.
struct Library {
  std::string_view header;  // how its include paths begin
  std::vector<std::string_view> places;
};

const std::vector<Library>& Libraries() {
  static const std::vector<Library>* const libraries = new std::vector<Library>{
      {"dnnl", {"kernels/cpu/"}},
      {"oneapi/", {"kernels/cpu/"}},
      {"omp.h", {"kernels/cpu/"}},
      {"cuda", {"kernels/cuda/"}},
      {"cublas", {"kernels/cuda/"}},
      {"nccl", {"trainer/comm/nccl_"}},
      {"grpc", {"rpc/"}},
      {"openssl/", {"rpc/"}},
      {"prometheus/", {"rpc/"}},
      {"google/protobuf/", {"proto/", "rpc/", "ps/", "trainer/", "examples/"}},
  };
  return *libraries;
}

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool IsIn(std::string_view path, std::string_view room) {
  return StartsWith(path, room) && (path.size() == room.size() || path[room.size()] == '/');
}

bool IsOurs(std::string_view path) {
  return std::any_of(kFolders.begin(), kFolders.end(), [&](std::string_view folder) { return IsIn(path, folder); });
}

const Room* RoomOf(std::string_view path) {
  for (const Room& room : Rooms()) {
    if (IsIn(path, room.path)) return &room;
  }
  return nullptr;
}

bool MayInclude(const Room& room, std::string_view included) {
  if (IsIn(included, room.path)) return true;
  if (room.anything && !IsIn(included, "tests")) return true;
  return std::any_of(room.arrows.begin(), room.arrows.end(), [&](std::string_view arrow) {
    if (IsIn(included, arrow)) return true;
    const Room* next = RoomOf(arrow);
    return IsIn(room.path, "trainer") && next != nullptr && IsIn(next->path, "trainer") && MayInclude(*next, included);
  });
}

std::string WhyLibraryForbidden(std::string_view source, std::string_view room, std::string_view included) {
  if (IsIn(source, "tests")) return "";
  for (const Library& library : Libraries()) {
    if (!StartsWith(included, library.header)) continue;
    std::string places;
    for (std::string_view place : library.places) {
      if (StartsWith(source, place)) return "";
      places += (places.empty() ? "" : ", ") + std::string(place);
    }
    return std::string(room) + " may not include <" + std::string(included) + ">; only " + places + " may";
  }
  return "";
}

// The path from the root of what `source` includes as `written`, or `written` itself for what is not ours.
std::string Resolve(const fs::path& root, const fs::path& source, const std::string& written) {
  if (IsOurs(written)) return fs::path(written).lexically_normal().generic_string();
  const fs::path beside = (source.parent_path() / written).lexically_normal();
  if (fs::exists(root / beside)) return beside.generic_string();
  // Generated headers can be found without their folder's name.
  const bool generated =
      written.size() > 5 && written.substr(written.size() - 5) == ".pb.h" && written.find('/') == std::string::npos;
  return generated ? "proto/" + written : written;
}

void CheckFile(const fs::path& root, const fs::path& source, IncludeReport* report) {
  static const std::regex* const pattern = new std::regex(R"(^\s*#\s*include\s*["<]([^">]+)[">])");
  std::ifstream file(root / source);
  std::string line;
  ++report->num_files;
  for (int number = 1; std::getline(file, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, *pattern)) continue;
    const std::string why = WhyForbidden(source.generic_string(), Resolve(root, source, match[1]));
    if (!why.empty()) report->violations.push_back(source.generic_string() + ":" + std::to_string(number) + ": " + why);
  }
}

}  // namespace

std::string WhyForbidden(std::string_view source, std::string_view included) {
  const Room* room = RoomOf(source);
  if (room == nullptr) return std::string(source) + " is in no room of the table in tests/architecture/include_rules.cc";
  if (!IsOurs(included)) return WhyLibraryForbidden(source, room->path, included);
  if (MayInclude(*room, included)) return "";
  return std::string(room->path) + " may not include " + std::string(included);
}

IncludeReport CheckIncludes(const fs::path& root) {
  static constexpr std::array<std::string_view, 7> kExtensions = {".h", ".cc", ".inc", ".cu", ".cuh", ".hpp", ".cpp"};
  std::vector<fs::path> sources;
  for (std::string_view folder : kFolders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || std::find(kExtensions.begin(), kExtensions.end(), extension) == kExtensions.end())
        continue;
      sources.push_back(entry.path().lexically_relative(root));
    }
  }
  std::sort(sources.begin(), sources.end());
  IncludeReport report;
  for (const fs::path& source : sources) CheckFile(root, source, &report);
  return report;
}

}  // namespace tandem
