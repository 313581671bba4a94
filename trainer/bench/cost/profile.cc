#include "trainer/bench/cost/profile.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <google/protobuf/text_format.h>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/job/text_reader.h"

namespace tandem::bench {

namespace {

constexpr char kTypical[] = R"(
machine: "typical figures" date: "2026-11-29" cores: 2
update_ns_per_byte: 0.2 apply_ns_per_byte: 0.25 trainer_ns_per_row: 20 server_ns_per_row: 40
shm { ring_message_us: 15 ring_ns_per_byte: 0.06 call_us: 110 call_trainer_us: 35 call_server_us: 25
      trainer_ns_per_byte: 0.22 server_ns_per_byte: 0.27 }
tcp { ring_message_us: 30 ring_ns_per_byte: 0.5 call_us: 300 call_trainer_us: 100 call_server_us: 80
      trainer_ns_per_byte: 0.6 server_ns_per_byte: 0.6 }
network { ring_message_us: 40 ring_ns_per_byte: 1.2 call_us: 500 call_trainer_us: 150
          call_server_us: 120 trainer_ns_per_byte: 1 server_ns_per_byte: 1 }
)";

struct Coefficient {
  std::string name;
  std::optional<double> value;
};

std::vector<Coefficient> CoefficientsOf(const google::protobuf::Message& message,
                                        const std::string& prefix = "") {
  std::vector<Coefficient> all;
  const auto* const type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* const field = type->field(i);
    const std::string name = prefix + field->name();
    using Field = google::protobuf::FieldDescriptor;
    if (field->cpp_type() == Field::CPPTYPE_DOUBLE) {
      all.push_back({name, std::nullopt});
      if (message.GetReflection()->HasField(message, field))
        all.back().value = message.GetReflection()->GetDouble(message, field);
    } else if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
      const auto more =
          CoefficientsOf(message.GetReflection()->GetMessage(message, field), name + ".");
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  return all;
}

}  // namespace

CostProfile TypicalCosts() {
  CostProfile profile;
  google::protobuf::TextFormat::ParseFromString(kTypical, &profile);
  return profile;
}

int CoresHere() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

absl::StatusOr<CostProfile> ReadProfile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.is_open() || file.bad())
    return absl::InvalidArgumentError(absl::StrCat("--profile ", path, " cannot be read"));
  CostProfile profile;
  TextReader reader(path, &profile);
  reader.Read(text.str());
  std::vector<std::string> errors = reader.errors();
  if (errors.empty() && profile.cores() == 0)
    errors.push_back(absl::StrCat(path, ": cores is 0; allowed: at least 1"));
  for (const Coefficient& coefficient : CoefficientsOf(profile)) {
    const std::optional<double>& value = coefficient.value;
    if (!value.has_value() || !(*value >= 0) || !std::isfinite(*value))
      errors.push_back(absl::StrCat(path, ": ", coefficient.name, " is ",
                                    value.has_value() ? absl::StrCat(*value) : "missing",
                                    "; allowed: at least 0"));
  }
  if (!errors.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile ", path, " is damaged; allowed: a file of --write-profile\n",
                     absl::StrJoin(errors, "\n")));
  }
  return profile;
}

absl::Status WriteProfile(const CostProfile& profile, const std::string& path) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(profile, &text);
  std::ofstream file(path);
  file << text << std::flush;
  if (file.good()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot write --write-profile ", path));
}

std::vector<std::string> LinesOf(const CostProfile& profile, Machines::Transport last) {
  std::vector<std::string> lines = {
      absl::StrFormat("a trainer updates dense weights: %.3g ns a byte",
                      profile.update_ns_per_byte()),
      absl::StrFormat("a server updates rows: %.3g ns a byte", profile.apply_ns_per_byte()),
      absl::StrFormat("a row pushed or pulled: %.3g ns at the trainer, %.3g ns at the server",
                      profile.trainer_ns_per_row(), profile.server_ns_per_row())};
  const std::pair<const char*, const TransportCosts&> transports[] = {
      {"shm", profile.shm()}, {"tcp", profile.tcp()}, {"network", profile.network()}};
  for (int i = 0; i <= last; ++i) {
    const auto& [name, costs] = transports[i];
    lines.push_back(absl::StrFormat("%s: ring %.3g us a message, %.3g ns a byte", name,
                                    costs.ring_message_us(), costs.ring_ns_per_byte()));
    lines.push_back(absl::StrFormat(
        "%s: servers %.3g us a call, %.3g ns a byte at a trainer, %.3g at a server", name,
        costs.call_us(), costs.trainer_ns_per_byte(), costs.server_ns_per_byte()));
  }
  return lines;
}

}  // namespace tandem::bench
