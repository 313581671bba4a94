// `tandem inspect`: checks every byte of a checkpoint, or of all checkpoints in a folder, and lists
// their contents.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/count_text.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/terminal.h"
#include "kernels/base/utf8.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/server/checkpoint.h"
#include "ps/wire/row_layout.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/safetensors_file.h"
#include "trainer/checkpoint/saved_data.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/job/model_rules.h"
#include "trainer/report/run_output.h"
#include "trainer/report/text_table.h"

namespace tandem::cli {
namespace {

using report::TextTable;

constexpr size_t kColumns = 80;  // of a line; a table takes a wider terminal, only paths are longer

// Formats 1234567 as "1,234,567".
std::string Grouped(uint64_t number) { return CountText(static_cast<double>(number)); }

void Print(TextTable table) {
  std::printf("\n%s", table.TakeLines(std::max(kColumns, TerminalColumns())).c_str());
}

struct TableCount {
  uint64_t rows = 0, files = 0;
};
struct TableCounts {
  std::map<uint32_t, TableCount> tables;  // by number
  absl::uint128 hash = 0;                 // the rows' share of params_hash
};

// Reads every row, because a checksum alone does not prove that a file can be loaded.
absl::StatusOr<TableCounts> CountRows(const checkpoint::Checkpoint& saved) {
  TableCounts counts;
  std::string table;
  std::optional<ps::RowLayout> layout;
  for (const SavedFile& file : saved.manifest.rows()) {
    const absl::Status read = ps::ReadRows(
        saved.folder + "/" + file.name(),
        [&](const ps::RowFileHeader& header) {
          counts.tables[header.number].rows += header.num_rows;
          counts.tables[header.number].files += 1;
          table = header.table;
          layout.emplace(header.dim, header.storage, header.num_slot_values);
          return absl::OkStatus();
        },
        [](uint32_t) { return true; },
        [&](const ps::SavedRow& row) {
          counts.hash += ps::HashRow(table, *layout, row.header.id, row.values);
          return absl::OkStatus();
        });
    if (!read.ok())
      return absl::FailedPreconditionError(absl::StrCat("checkpoint ", read.message()));
  }
  return counts;
}

// Returns the share of params_hash of the dense parameters: each with its slots, in the file's
// order.
absl::StatusOr<absl::uint128> HashDense(const checkpoint::Checkpoint& saved) {
  ASSIGN_OR_RETURN(const auto file,
                   checkpoint::SafetensorsFile::Open(saved.DensePath(),
                                                     checkpoint::SafetensorsFile::Access::READ));
  std::map<std::string, uint32_t> num_arrays;  // by parameter
  absl::uint128 sum = 0;
  for (const checkpoint::TensorEntry& entry : file->header().tensors) {
    const std::string parameter = entry.name.substr(0, entry.name.find('#'));
    const Tensor tensor = Tensor::Empty(entry.shape, entry.dtype);
    RETURN_IF_ERROR(file->Read(entry, 0, tensor.num_elements(), tensor.raw()));
    sum += HashTensor(parameter, num_arrays[parameter]++, tensor);
  }
  return sum;
}

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// Quotes like a C string, and cuts between characters so that the result fits `width` bytes.
std::string Quoted(const std::string& text, size_t width) {
  std::string quoted = "\"";
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    for (end = begin + 1; end < text.size() && !BeginsCharacter(text[end]);) ++end;
    const std::string character = absl::Utf8SafeCEscape(text.substr(begin, end - begin));
    // Room for the closing quote, and for dots if more follows.
    const size_t rest = end < text.size() ? 3 : 1;
    if (quoted.size() + character.size() + rest > width) return quoted + "\"..";
    quoted += character;
  }
  return quoted + "\"";
}

// A checkpoint that passed all checks.
struct Inspected {
  checkpoint::Checkpoint saved;
  checkpoint::SafetensorsHeader dense;
  TableCounts tables;
  absl::uint128 hash = 0;  // params_hash

  uint64_t bytes() const {
    uint64_t sum = saved.manifest.dense().bytes() + saved.manifest.items().bytes() +
                   saved.manifest.catalogue().bytes();
    for (const SavedFile& file : saved.manifest.rows()) sum += file.bytes();
    return sum;
  }
};

absl::StatusOr<Inspected> InspectOne(const std::string& path) {
  Inspected inspected;
  ASSIGN_OR_RETURN(inspected.saved, checkpoint::OpenCheckpoint(path, checkpoint::Choice::NEWEST));
  auto dense = checkpoint::ReadSafetensorsHeader(inspected.saved.DensePath());
  if (!dense.ok())
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", dense.status().message()));
  inspected.dense = *std::move(dense);
  ASSIGN_OR_RETURN(inspected.tables, CountRows(inspected.saved));
  const absl::StatusOr<absl::uint128> hash = HashDense(inspected.saved);
  if (!hash.ok())
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", hash.status().message()));
  inspected.hash = *hash + inspected.tables.hash;
  return inspected;
}

// Prints "name value" cells in columns under the text of a line.
void PrintMetrics(const std::map<std::string, double>& metrics) {
  std::string line;
  const auto flush = [&line] {
    if (line.empty()) return;
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("            %s\n", line.c_str());
    line.clear();
  };
  for (const auto& [name, value] : metrics) {
    const std::string cell =
        absl::StrFormat("%-30s  ", absl::StrFormat("%s %.4f", absl::Utf8SafeCEscape(name), value));
    if (12 + line.size() + cell.size() > kColumns) flush();
    line += cell;
  }
  flush();
}

void PrintState(const CheckpointManifest& manifest) {
  const auto line = [](const char* title, const std::string& text) {
    std::printf("  %-8s  %s\n", title, text.c_str());
  };
  const Job& job = manifest.job();
  line("job",
       absl::StrCat(absl::Utf8SafeCEscape(job.name()), ", ",
                    absl::Utf8SafeCEscape(job::KindOf(job.model())), ", seed ", manifest.seed()));
  std::string stands = absl::StrCat("after step ", Grouped(manifest.step()), ", in epoch ",
                                    Grouped(manifest.epoch()));
  if (manifest.epoch_steps() > 0) {
    absl::StrAppendFormat(&stands, " after %s of its steps, mean loss %.4f",
                          Grouped(manifest.epoch_steps()),
                          manifest.epoch_loss() / static_cast<double>(manifest.epoch_steps()));
  }
  line("stands", stands);
  line("consumed", absl::StrCat(Grouped(manifest.samples_consumed()), " samples, ",
                                Grouped(manifest.tokens_consumed()), " tokens"));
  for (const SavedFile& file : manifest.data())
    line("data", absl::StrCat(Printable(file.name()), ", ", checkpoint::FingerprintText(file)));
  if (manifest.num_items() > 0) line("items", absl::StrCat("1 .. ", Grouped(manifest.num_items())));
  if (!manifest.symbols().empty()) {
    const auto count =
        std::count_if(manifest.symbols().begin(), manifest.symbols().end(), BeginsCharacter);
    line("text",
         absl::StrCat("a vocabulary of ", Grouped(static_cast<uint64_t>(count)), " symbols"));
    line("symbols", Quoted(manifest.symbols(), kColumns - 12));
  }
  if (manifest.best_epoch() == 0) return line("best", "no evaluation yet");
  line("best",
       absl::StrFormat("epoch %s, step %s, selected by %.6g; %s evaluations since",
                       Grouped(manifest.best_epoch()), Grouped(manifest.best_step()),
                       manifest.best_selection(), Grouped(manifest.evaluations_since_best())));
  PrintMetrics({manifest.best_metrics().begin(), manifest.best_metrics().end()});
}

void PrintDense(const checkpoint::SafetensorsHeader& dense) {
  std::map<std::string, std::vector<const checkpoint::TensorEntry*>> slots;  // by parameter
  for (const auto& entry : dense.tensors) {
    const size_t mark = entry.name.find('#');
    if (mark != std::string::npos) slots[entry.name.substr(0, mark)].push_back(&entry);
  }
  TextTable table({{"dense tensor", TextTable::LEFT},
                   {"type", TextTable::LEFT},
                   {"shape", TextTable::LEFT},
                   {"bytes"},
                   {"optimizer slots", TextTable::LEFT},
                   {"bytes"}});
  uint64_t count = 0, bytes = 0, all_slot_bytes = 0;
  for (const auto& entry : dense.tensors) {
    if (entry.name.find('#') != std::string::npos) continue;
    uint64_t slot_bytes = 0;
    std::vector<std::string> names;
    for (const auto* slot : slots[entry.name]) {
      slot_bytes += slot->end - slot->begin;
      names.push_back(slot->name.substr(entry.name.size() + 1));
    }
    std::vector<std::string> extents;
    for (int i = 0; i < entry.shape.num_dims(); ++i)
      extents.push_back(absl::StrCat(entry.shape[i]));
    table.Add({entry.name, NameOf(entry.dtype),
               absl::StrCat("[", absl::StrJoin(extents, ", "), "]"),
               Grouped(entry.end - entry.begin), absl::StrJoin(names, ", "), Grouped(slot_bytes)});
    ++count;
    bytes += entry.end - entry.begin;
    all_slot_bytes += slot_bytes;
  }
  table.Add({absl::StrCat(Grouped(count), " tensors"), "", "", Grouped(bytes), "",
             Grouped(all_slot_bytes)});
  Print(std::move(table));
}

void PrintTables(const Inspected& inspected) {
  if (inspected.saved.manifest.tables().empty()) return;
  TextTable table({{"table", TextTable::LEFT},
                   {"rows"},
                   {"dim"},
                   {"optimizer", TextTable::LEFT},
                   {"mode", TextTable::LEFT},
                   {"storage", TextTable::LEFT},
                   {"files"}});
  for (const TableSpec& spec : inspected.saved.manifest.tables()) {
    const auto& counts = inspected.tables.tables;
    const auto found = counts.find(spec.number());
    const TableCount count = found == counts.end() ? TableCount() : found->second;
    table.Add({spec.name(), Grouped(count.rows), absl::StrCat(spec.dim()),
               ps::NameOf(spec.optimizer()), TableSpec::Mode_Name(spec.mode()),
               ps::NameOf(spec.storage()), Grouped(count.files)});
  }
  Print(std::move(table));
}

void PrintFiles(const checkpoint::Checkpoint& saved) {
  TextTable table(
      {{"file", TextTable::LEFT}, {"bytes"}, {"crc32c", TextTable::LEFT}, {"", TextTable::LEFT}});
  std::error_code ignored;
  const uint64_t manifest_bytes =
      std::filesystem::file_size(saved.folder + "/manifest.textproto", ignored);
  table.Add({"manifest.textproto", Grouped(manifest_bytes), "its own", "ok"});
  const auto add = [&table](const SavedFile& file) {
    table.Add({file.name(), Grouped(file.bytes()), absl::StrFormat("%08x", file.crc32c()), "ok"});
  };
  add(saved.manifest.dense());
  if (saved.manifest.has_items()) add(saved.manifest.items());
  if (saved.manifest.has_catalogue()) add(saved.manifest.catalogue());
  for (const SavedFile& file : saved.manifest.rows()) add(file);
  Print(std::move(table));
}

absl::Status Run(const InspectOptions& options) {
  std::vector<std::string> paths = checkpoint::ListCheckpoints(options.checkpoint);
  const bool several = !paths.empty();
  if (!several) paths.push_back(options.checkpoint);
  TextTable list({{"checkpoint", TextTable::LEFT},
                  {"epoch"},
                  {"bytes"},
                  {"", TextTable::LEFT},
                  {"", TextTable::LEFT}});
  Inspected last;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(last, InspectOne(path));
    list.Add({path.substr(path.rfind('/') + 1), Grouped(last.saved.manifest.epoch()),
              Grouped(last.bytes()), "ok", checkpoint::IsBest(last.saved.manifest) ? "best" : ""});
  }
  if (several) {
    std::printf("%s\n", options.checkpoint.c_str());
    Print(std::move(list));
    std::printf("\n");
  }
  std::printf("%s\n\n", last.saved.folder.c_str());
  PrintState(last.saved.manifest);
  PrintDense(last.dense);
  PrintTables(last);
  PrintFiles(last.saved);
  std::printf("\nparams_hash %s\n", report::HashText(last.hash).c_str());
  return absl::OkStatus();
}

}  // namespace

int Inspect(const InspectOptions& options) {
  const absl::Status status = Run(options);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
