// Limits of a job's numbers. Only a field that the job gives is checked, 0 too: what is absent takes its default. An error
// says where the field was given, what was found and what is allowed.
// Thread rule: one thread.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "trainer/job/text_reader.h"

namespace tandem {

class Limits {
 public:
  // Errors go to `reader`, which knows the places.
  explicit Limits(TextReader* reader) : reader_(reader) {}

  // `prefix` is the path of `message` with its dot; `field` is the name of a number in it.
  void Between(const google::protobuf::Message& message, const std::string& prefix, const char* field, double low, double high);
  void AtLeast(const google::protobuf::Message& message, const std::string& prefix, const char* field, double low);
  // Also as an f32, which most numbers become.
  void Positive(const google::protobuf::Message& message, const std::string& prefix, const char* field);
  // [0, 1) and (0, 1).
  void BelowOne(const google::protobuf::Message& message, const std::string& prefix, const char* field);
  void InsideOne(const google::protobuf::Message& message, const std::string& prefix, const char* field);

  template <typename T>
  void Refuse(const std::string& path, const T& found, const std::string& allowed) {
    Fail(path, absl::StrCat(path, " is ", found, "; allowed: ", allowed));
  }
  void Fail(const std::string& path, const std::string& what) {
    reader_->AddError(absl::StrCat(reader_->Place(path), ": ", what));
  }

 private:
  TextReader* reader_;
};

}  // namespace tandem
