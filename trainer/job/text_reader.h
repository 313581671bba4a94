// Reads protobuf text format into a message and remembers the place of each field. protobuf's own
// parser stops at the first wrong value. This reader goes on, because a user wants to see all
// mistakes of a job file at once. It reads the part of the language that hand-written files use:
// fields, { } and < > messages, [ ] lists, comments. It reads no extensions and no Any. A field's
// path has the form train.batch_size or tables[0].dim. In a message that is one map of texts, every
// name is a key: model.custom.options.dim.
// Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace google::protobuf {
class Message;
}

namespace tandem {

class TextReader {
 public:
  // `file` is the name shown in errors. The reader fills `message`.
  // REQUIRES: `message` outlives the reader.
  TextReader(std::string file, google::protobuf::Message* message);

  // Returns false if the syntax is so broken that the rest of `text` was not read. Other mistakes
  // only add errors.
  bool Read(const std::string& text);

  // Applies "path=value" (field_path.h).
  void Set(const std::string& assignment);

  // The place where `path`, or else the nearest message around it, was given: "job.textproto:12:3",
  // "--set train.batch_size", or the file alone.
  std::string Place(std::string path) const;

  void AddError(std::string error) { errors_.push_back(std::move(error)); }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  const std::string file_;
  google::protobuf::Message* const message_;
  std::map<std::string, std::string> places_;  // path -> place
  std::vector<std::string> errors_;
};

}  // namespace tandem
