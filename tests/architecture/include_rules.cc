#include "tests/architecture/include_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kFolders = {"proto",   "kernels",  "rpc",  "ps",
                                                      "trainer", "examples", "tests"};

// A room is a folder without its subfolders, or one file. A room may include itself and what its
// arrows name. It inherits nothing.
// An arrow names a room, one header of a room, or, with a trailing slash, a folder with everything
// below.
struct Room {
  std::string_view path;
  std::string_view arrows;  // separated by spaces
};

// The left room may include the right ones. A file belongs to the room with the longest matching
// path.
constexpr Room kRooms[] = {
    {"proto", ""},

    {"kernels/base", ""},
    {"kernels/trace", "kernels/base"},
    {"kernels/memory", "kernels/trace kernels/base"},
    {"kernels", "kernels/memory kernels/base"},
    {"kernels/cpu/vector", "kernels/memory kernels/base"},
    {"kernels/cpu/matmul", "kernels/cpu/vector kernels/memory kernels/base"},
    {"kernels/cpu/attention", "kernels/cpu/matmul kernels/cpu/vector kernels/memory kernels/base"},
    {"kernels/cpu",
     "kernels kernels/cuda/kernels.h kernels/cpu/attention kernels/cpu/matmul kernels/cpu/vector "
     "kernels/memory kernels/trace kernels/base"},
    {"kernels/cuda/plan", "kernels"},
    {"kernels/cuda/device", "kernels kernels/cuda/plan kernels/memory kernels/base"},
    {"kernels/cuda/attention",
     "kernels kernels/cuda/device kernels/cuda/plan kernels/memory kernels/base"},
    {"kernels/cuda",
     "kernels kernels/cuda/attention kernels/cuda/device kernels/cuda/plan kernels/memory "
     "kernels/trace kernels/base"},

    {"rpc/store", "kernels/base"},
    {"rpc/shared",
     "rpc/payload.h rpc/future.h rpc/handler.h rpc/client_stream.h rpc/credentials.h "
     "rpc/grpc_bytes.h rpc/ordered_answers.h rpc/served_call.h "
     "kernels/memory kernels/trace kernels/base"},
    {"rpc", "rpc/shared proto kernels/memory kernels/trace kernels/base"},
    {"rpc/master", "rpc rpc/store proto kernels/trace kernels/base"},

    {"ps/wire", "rpc/master/shard_map.h proto kernels/cpu/vector kernels/memory kernels/base"},
    {"ps/optimizer", "ps/wire proto kernels kernels/cpu kernels/cpu/vector kernels/base"},
    {"ps/store", "ps/optimizer ps/wire proto kernels/cpu/vector kernels/memory kernels/base"},
    {"ps/server",
     "ps/store ps/wire rpc rpc/master/shard_map.h proto kernels/memory kernels/trace kernels/base"},
    {"ps/client",
     "ps/wire rpc rpc/shared/stream.h proto kernels/memory kernels/trace kernels/base"},
    {"ps/caching",
     "ps/client ps/store ps/optimizer ps/wire rpc rpc/master/shard_map.h proto kernels/memory "
     "kernels/base"},
    {"ps/local", "ps/client ps/server ps/wire kernels/memory kernels/base"},

    {"trainer/tensor", "kernels kernels/memory kernels/base"},
    {"trainer/autograd", "trainer/tensor kernels kernels/memory kernels/base"},
    {"trainer/autograd/ops", "trainer/autograd trainer/tensor kernels kernels/memory kernels/base"},
    {"trainer/nn",
     "trainer/autograd trainer/autograd/ops trainer/tensor kernels kernels/memory kernels/base"},
    {"trainer/optim", "trainer/autograd trainer/tensor kernels kernels/memory kernels/base"},
    {"trainer/comm", "rpc kernels/memory kernels/base"},
    {"trainer/comm/host", "trainer/comm rpc rpc/shared rpc/store kernels/memory kernels/base"},
    {"trainer/comm/net",
     "trainer/comm trainer/comm/host rpc rpc/store kernels/memory kernels/base"},
    {"trainer/comm/device", "trainer/comm rpc rpc/store kernels/memory kernels/base"},
    {"trainer/sparse",
     "trainer/comm trainer/nn trainer/optim trainer/autograd trainer/autograd/ops trainer/tensor "
     "ps/client/row_client.h ps/client/pooled_client.h "
     "ps/caching/trainer_exchange.h ps/wire rpc proto kernels "
     "kernels/cpu/vector kernels/memory kernels/trace kernels/base"},
    {"trainer/remote",
     "trainer/sparse trainer/nn trainer/optim trainer/autograd trainer/autograd/ops trainer/tensor "
     "rpc proto kernels kernels/memory kernels/trace "
     "kernels/base"},
    {"trainer/parallel",
     "trainer/comm trainer/optim trainer/autograd trainer/tensor kernels kernels/memory "
     "kernels/base"},
    {"trainer/parallel/data_parallel",
     "trainer/parallel trainer/comm trainer/optim trainer/autograd trainer/tensor kernels "
     "kernels/memory kernels/base"},
    {"trainer/parallel/zero",
     "trainer/parallel trainer/comm trainer/optim trainer/autograd trainer/tensor kernels "
     "kernels/memory kernels/base"},
    {"trainer/parallel/tensor",
     "trainer/comm trainer/nn trainer/autograd trainer/autograd/ops trainer/tensor kernels "
     "kernels/memory kernels/base"},
    {"trainer/parallel/pipeline",
     "trainer/comm trainer/autograd trainer/tensor kernels kernels/memory kernels/base"},
    {"trainer/parallel/served",
     "trainer/parallel trainer/sparse trainer/optim trainer/autograd trainer/tensor "
     "ps/client/row_client.h ps/client/table_admin.h "
     "ps/wire rpc proto kernels kernels/memory kernels/base"},
    {"trainer/data", "kernels/base"},
    {"trainer/data/text", "trainer/data kernels/base"},
    {"trainer/models",
     "trainer/parallel trainer/parallel/tensor trainer/nn trainer/autograd trainer/autograd/ops "
     "trainer/tensor kernels "
     "kernels/memory kernels/base"},
    {"trainer/job",
     "trainer/parallel trainer/parallel/pipeline/schedule.h trainer/parallel/served trainer/sparse "
     "trainer/comm trainer/comm/device "
     "trainer/optim trainer/autograd trainer/tensor proto kernels kernels/memory kernels/base"},
    {"trainer/checkpoint",
     "trainer/job trainer/optim trainer/autograd trainer/tensor ps/client/table_admin.h rpc proto "
     "kernels kernels/memory kernels/base"},
    {"trainer/tasks",
     "trainer/job trainer/data trainer/parallel/pipeline trainer/sparse trainer/comm trainer/nn "
     "trainer/autograd trainer/tensor "
     "ps/client/row_client.h "
     "proto kernels kernels/memory kernels/base"},
    {"trainer/tasks/ranking",
     "trainer/tasks trainer/job trainer/models trainer/data trainer/data/text trainer/sparse "
     "trainer/comm trainer/parallel/pipeline trainer/parallel/tensor "
     "trainer/nn trainer/autograd trainer/autograd/ops trainer/tensor proto kernels kernels/memory "
     "kernels/base"},
    {"trainer/tasks/text",
     "trainer/tasks trainer/job trainer/models trainer/data trainer/data/text trainer/sparse "
     "trainer/comm trainer/parallel/pipeline "
     "trainer/nn trainer/autograd trainer/tensor proto kernels kernels/memory kernels/base"},
    {"trainer/tasks/kinds",
     "trainer/tasks trainer/tasks/ranking trainer/tasks/text trainer/job proto kernels/base"},
    {"trainer/report/events", "trainer/report/step_observer.h kernels/base"},
    {"trainer/report/page", "kernels/base"},
    {"trainer/report",
     "trainer/report/events trainer/report/page trainer/tasks trainer/checkpoint trainer/job "
     "trainer/parallel/pipeline trainer/comm "
     "ps/client/table_admin.h rpc "
     "rpc/master proto kernels/memory kernels/trace kernels/base"},
    {"trainer/loop/replica",
     "trainer/report trainer/tasks trainer/checkpoint trainer/job trainer/parallel "
     "trainer/parallel/data_parallel trainer/parallel/pipeline trainer/parallel/served "
     "trainer/parallel/tensor "
     "trainer/parallel/zero trainer/sparse trainer/comm "
     "trainer/optim trainer/autograd trainer/tensor ps/client/clients.h ps/client/row_client.h "
     "ps/client/table_admin.h rpc/master proto kernels kernels/memory kernels/base"},
    {"trainer/loop",
     "trainer/loop/replica trainer/report trainer/tasks trainer/checkpoint trainer/job "
     "trainer/parallel trainer/parallel/pipeline trainer/sparse trainer/comm trainer/optim "
     "trainer/autograd trainer/tensor "
     "ps/client/table_admin.h rpc proto kernels/memory kernels/trace kernels/base"},
    {"trainer/cli/process", "rpc kernels/base"},
    {"trainer/cli", "trainer/ ps/ rpc/ proto kernels/"},
    {"trainer/cli/roles",
     "trainer/cli trainer/cli/process trainer/loop trainer/remote trainer/comm/net "
     "trainer/parallel trainer/job ps/client ps/server rpc rpc/master proto kernels/base"},
    {"trainer/cli/saved",
     "trainer/cli trainer/cli/process trainer/report trainer/loop/replica trainer/tasks "
     "trainer/tasks/ranking trainer/tasks/kinds trainer/checkpoint trainer/job trainer/data "
     "trainer/data/text trainer/models trainer/sparse trainer/comm trainer/comm/host "
     "trainer/autograd trainer/tensor ps/local ps/server ps/optimizer ps/client/row_client.h "
     "ps/wire "
     "proto "
     "kernels "
     "kernels/memory kernels/base"},
    {"trainer/bench", "trainer/ ps/ rpc/ proto kernels/"},
    {"trainer/bench/members",
     "trainer/cli trainer/cli/process trainer/cli/roles ps/server rpc rpc/master proto "
     "kernels/base"},
    {"trainer/bench/cost", "trainer/job proto kernels/base"},
    {"trainer/bench/plan",
     "trainer/bench trainer/bench/cost trainer/bench/members trainer/bench/sync trainer/cli "
     "trainer/cli/process trainer/report trainer/comm/host trainer/parallel/served trainer/job "
     "trainer/tasks trainer/tasks/kinds ps/local ps/server kernels/memory kernels/base"},
    {"trainer/bench/sync",
     "trainer/bench trainer/bench/cost trainer/bench/members trainer/cli trainer/cli/process "
     "trainer/report trainer/report/page trainer/optim trainer/autograd trainer/comm "
     "trainer/comm/host trainer/comm/net trainer/parallel/served ps/client rpc rpc/master proto "
     "kernels/memory kernels/base"},
    {"trainer/main.cc", "trainer/cli trainer/bench"},

    {"examples/",
     "examples/ trainer/ ps/client/clients.h ps/client/pooled_client.h ps/client/row_client.h "
     "ps/client/table_admin.h rpc rpc/master proto kernels/base/status_macros.h"},
    {"tests/", "tests/ trainer/ ps/ rpc/ proto kernels/ examples/custom_model/two_tower.h"},
};

// A library whose headers only some places may include. Tests may include all of them.
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
      {"nccl", {"trainer/comm/device/nccl_"}},
      {"grpc", {"rpc/"}},
      {"openssl/", {"rpc/"}},
      {"prometheus/", {"rpc/"}},
      {"gloo/", {"trainer/bench/gloo_allreduce"}},
      {"nlohmann/",
       {"trainer/report/", "trainer/bench/", "trainer/checkpoint/safetensors_header.cc"}},
      {"utf8proc", {"trainer/data/"}},
      {"google/protobuf/", {"proto/", "rpc/", "ps/", "trainer/", "examples/"}},
  };
  return *libraries;
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool IsIn(std::string_view path, std::string_view room) {
  return StartsWith(path, room) && (path.size() == room.size() || path[room.size()] == '/');
}

bool IsOurs(std::string_view path) {
  return std::any_of(kFolders.begin(), kFolders.end(),
                     [&](std::string_view folder) { return IsIn(path, folder); });
}

std::string_view Parent(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// Returns true if `place` names `path`. `place` is a file, a folder without its subfolders, or,
// with a trailing slash, a folder with everything below.
bool IsOf(std::string_view path, std::string_view place) {
  if (!place.empty() && place.back() == '/') return StartsWith(path, place);
  return path == place || Parent(path) == place;
}

const Room* RoomOf(std::string_view path) {
  const Room* best = nullptr;
  for (const Room& room : kRooms) {
    if (IsOf(path, room.path) && (best == nullptr || room.path.size() > best->path.size()))
      best = &room;
  }
  return best;
}

bool MayInclude(const Room& room, std::string_view included) {
  if (IsOf(included, room.path)) return true;
  for (std::string_view rest = room.arrows; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (IsOf(included, rest.substr(0, end))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::string WhyLibraryForbidden(std::string_view source, std::string_view room,
                                std::string_view included) {
  if (IsIn(source, "tests")) return "";
  for (const Library& library : Libraries()) {
    if (!StartsWith(included, library.header)) continue;
    std::string places;
    for (std::string_view place : library.places) {
      if (StartsWith(source, place)) return "";
      places += (places.empty() ? "" : ", ") + std::string(place);
    }
    return std::string(room) + " may not include <" + std::string(included) + ">; only " + places +
           " may";
  }
  return "";
}

// The path from the root of the file that `source` includes as `written`. Returns `written` itself
// for files that are not ours.
std::string Resolve(const fs::path& root, const fs::path& source, const std::string& written) {
  if (IsOurs(written)) return fs::path(written).lexically_normal().generic_string();
  const fs::path beside = (source.parent_path() / written).lexically_normal();
  if (fs::exists(root / beside)) return beside.generic_string();
  // Generated headers are found without their folder's name.
  const bool generated = written.size() > 5 && written.substr(written.size() - 5) == ".pb.h" &&
                         written.find('/') == std::string::npos;
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
    if (!why.empty())
      report->violations.push_back(source.generic_string() + ":" + std::to_string(number) + ": " +
                                   why);
  }
}

}  // namespace

std::string WhyForbidden(std::string_view source, std::string_view included) {
  const Room* room = RoomOf(source);
  if (room == nullptr)
    return std::string(source) +
           " is in no room of the table in tests/architecture/include_rules.cc";
  if (!IsOurs(included)) return WhyLibraryForbidden(source, room->path, included);
  if (MayInclude(*room, included)) return "";
  return std::string(room->path) + " may not include " + std::string(included);
}

IncludeReport CheckIncludes(const fs::path& root) {
  static constexpr std::array<std::string_view, 7> kExtensions = {".h",   ".cc",  ".inc", ".cu",
                                                                  ".cuh", ".hpp", ".cpp"};
  std::vector<fs::path> sources;
  for (std::string_view folder : kFolders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() ||
          std::find(kExtensions.begin(), kExtensions.end(), extension) == kExtensions.end())
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
