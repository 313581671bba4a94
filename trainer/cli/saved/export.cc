// `tandem export`: writes a saved model for other programs: the items' vectors, their ids and
// titles, and the dense parameters.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/saved/saved_recommender.h"

namespace tandem::cli {

namespace {

namespace fs = std::filesystem;

constexpr char kVectorsFile[] = "items.safetensors", kItemsFile[] = "items.tsv",
               kDenseFile[] = "dense.safetensors";

absl::Status WriteItems(const std::string& path, const tasks::SequenceData& data) {
  std::string lines;
  for (uint64_t item = 1; item <= data.num_items(); ++item)
    absl::StrAppend(&lines, data.ItemId(item), "\t", data.ItemTitle(item), "\n");
  FileWriter writer(path);
  writer.Append(lines.data(), lines.size());
  return writer.Finish().status();
}

absl::Status WriteVectors(const std::string& path, SavedRecommender& model) {
  RETURN_IF_ERROR(model.scorer().Begin(model.args()));
  const Tensor vectors = model.scorer().AllVectors().ToHost(model.stream());
  RETURN_IF_ERROR(model.stream().status());
  // Row i - 1 is item i, so that row and line numbers of the two files agree.
  return checkpoint::WriteSafetensors(
             path, {.tensors = {{"vectors", vectors.Rows(1, vectors.dim(0)).Clone()}},
                    .metadata = {{"ids", kItemsFile}}})
      .status();
}

absl::Status WriteDense(const std::string& path, SavedRecommender& model) {
  checkpoint::Safetensors content;
  for (const auto& parameter : model.parameters().all()) {
    content.tensors.push_back(
        {parameter->name, parameter->variable.value().ToHost(model.stream())});
  }
  return checkpoint::WriteSafetensors(path, content).status();
}

absl::Status Run(const ExportOptions& options, const tasks::Kinds& kinds) {
  std::error_code error;
  if (fs::exists(options.out, error) && !fs::is_empty(options.out, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out ", options.out, " is not empty; give another folder"));
  }
  ASSIGN_OR_RETURN(const auto model, SavedRecommender::Load(options.checkpoint, {}, kinds));
  fs::create_directories(options.out, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("--out ", options.out, ": ", error.message()));
  }
  RETURN_IF_ERROR(WriteVectors(absl::StrCat(options.out, "/", kVectorsFile), *model));
  RETURN_IF_ERROR(WriteItems(absl::StrCat(options.out, "/", kItemsFile), model->data()));
  RETURN_IF_ERROR(WriteDense(absl::StrCat(options.out, "/", kDenseFile), *model));
  std::printf("wrote %s/{%s,%s,%s}: %llu items of %lld numbers\n", options.out.c_str(),
              kVectorsFile, kItemsFile, kDenseFile,
              static_cast<unsigned long long>(model->data().num_items()),
              static_cast<long long>(model->scorer().AllVectors().dim(1)));
  return absl::OkStatus();
}

}  // namespace

int Export(const ExportOptions& options, const tasks::Kinds& kinds) {
  const absl::Status status = Run(options, kinds);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
