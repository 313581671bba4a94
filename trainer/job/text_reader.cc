#include "trainer/job/text_reader.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"
#include "trainer/job/field_path.h"
#include "trainer/job/field_value.h"

namespace tandem {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::io::Tokenizer;

// Recursive descent over one text. A syntax error ends it. An error in a value or a name is
// recorded, and parsing goes on.
class TextParser : private google::protobuf::io::ErrorCollector {
 public:
  TextParser(const std::string& file, const std::string& text,
             std::map<std::string, std::string>* places, std::vector<std::string>* errors)
      : file_(file),
        text_(text),
        places_(places),
        errors_(errors),
        stream_(text.data(), static_cast<int>(text.size())),
        tokenizer_(&stream_, this) {
    tokenizer_.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer_.Next();
  }

  // Reads fields up to `closing`, which is "" at the end of the file. Returns false after a syntax
  // error.
  bool ReadFields(const std::string& path, const std::string& closing, Message* message) {
    while (!broken_ && !AtEndOf(closing)) {
      if (!ReadField(path, message)) return false;
    }
    return !broken_;
  }

 private:
  const Tokenizer::Token& token() { return tokenizer_.current(); }
  bool At(std::string_view text) {
    return token().type == Tokenizer::TYPE_SYMBOL && token().text == text;
  }
  bool AtEndOf(const std::string& closing) {
    return closing.empty() ? token().type == Tokenizer::TYPE_END : At(closing);
  }
  bool Consume(std::string_view text) {
    if (!At(text)) return false;
    tokenizer_.Next();
    return true;
  }
  std::string Here() { return absl::StrCat(file_, ":", token().line + 1, ":", token().column + 1); }

  void Note(const std::string& place, const std::string& what) {
    errors_->push_back(absl::StrCat(place, ": ", what));
  }

  bool Broken(const std::string& expected) {
    const std::string found =
        token().type == Tokenizer::TYPE_END ? "the end of the file" : Printable(token().text);
    // The tokenizer reports a broken literal itself.
    if (!broken_) Note(Here(), absl::StrCat("expected ", expected, ", found ", found));
    broken_ = true;
    return false;
  }

  void AddError(int line, int column, const std::string& message) override {
    const std::string foreign = ForeignSymbolAt(line, column);
    if (!broken_)
      Note(absl::StrCat(file_, ":", line + 1, ":", column + 1),
           foreign.empty() ? message : foreign);
    broken_ = true;
  }

  // Returns the symbol at this place if no token can begin with it. The tokenizer would only report
  // the byte's number.
  std::string ForeignSymbolAt(int line, int column) const {
    constexpr int kTabWidth = 8;  // the tokenizer's
    size_t at = 0;
    for (; line > 0 && at < text_.size(); ++at) line -= text_[at] == '\n';
    for (int reached = 0; reached < column && at < text_.size(); ++at)
      reached += text_[at] == '\t' ? kTabWidth - reached % kTabWidth : 1;
    if (at >= text_.size() || (text_[at] & 0x80) == 0) return "";
    const Utf8Symbol symbol = DecodeUtf8(std::string_view(text_).substr(at));
    if (symbol.fault != nullptr)
      return absl::StrCat("found the byte ", Printable(text_.substr(at, 1)),
                          ", which is not UTF-8");
    return absl::StrCat("found ", Printable(text_.substr(at, symbol.num_bytes)), " (U+",
                        absl::Hex(static_cast<uint32_t>(symbol.symbol), absl::kZeroPad4),
                        "); outside of quotes all is ASCII");
  }

  bool ReadField(const std::string& path, Message* message) {
    if (token().type != Tokenizer::TYPE_IDENTIFIER) return Broken("a field name");
    const std::string name = token().text, place = Here();
    tokenizer_.Next();
    if (broken_) return false;
    if (OptionsOf(message->GetDescriptor()) != nullptr)
      return ReadOption(JoinPath(path, name), name, place, message);
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) Note(place, UnknownField(message->GetDescriptor(), name));
    const bool wanted = field != nullptr && IsFirst(JoinPath(path, name), place, field, *message);
    const bool colon = Consume(":");
    if (!colon && !At("{") && !At("<")) return Broken(absl::StrCat("\":\" or \"{\" after ", name));
    const bool ok = !wanted   ? SkipValue()
                    : At("[") ? ReadList(JoinPath(path, name), field, message)
                              : ReadValue(JoinPath(path, name), place, field, message);
    if (!ok) return false;
    SkipSeparator();
    return true;
  }

  void SkipSeparator() {
    if (!Consume(",")) Consume(";");
  }

  // An option has a free key and one plain value.
  bool ReadOption(const std::string& path, const std::string& key, const std::string& place,
                  Message* message) {
    if (!Consume(":")) return Broken(absl::StrCat("\":\" after ", key));
    const bool wanted = IsFirst(path, place);
    const std::string value_place = Here();
    if (At("{") || At("<") || At("[")) {
      Note(value_place,
           absl::StrCat(path, " takes a word, a number or a quoted string; found ", token().text));
      if (!SkipValue()) return false;
    } else {
      WrittenValue value;
      if (!ReadLiteral(&value)) return false;
      const std::string complaint = wanted ? AssignOption(path, key, value, message) : "";
      if (!complaint.empty()) Note(value_place, complaint);
    }
    SkipSeparator();
    return true;
  }

  bool IsFirst(const std::string& path, const std::string& place) {
    const auto [seen, first] = places_->emplace(path, place);
    if (!first) {
      Note(place,
           absl::StrCat(path, " is given twice, first at ", seen->second, "; allowed: once"));
    }
    return first;
  }

  // Only a list may be given more than once, and only one member of a oneof.
  bool IsFirst(const std::string& path, const std::string& place, const FieldDescriptor* field,
               const Message& message) {
    if (field->is_repeated()) return true;
    if (!IsFirst(path, place)) return false;
    const auto* choice = field->real_containing_oneof();
    if (choice != nullptr && message.GetReflection()->HasOneof(message, choice)) {
      const std::string other =
          message.GetReflection()->GetOneofFieldDescriptor(message, choice)->name();
      Note(place, absl::StrCat(path, " is given beside ", other, "; allowed: one of the two"));
      return false;
    }
    return true;
  }

  bool ReadList(const std::string& path, const FieldDescriptor* field, Message* message) {
    if (!field->is_repeated()) {
      Note(Here(), absl::StrCat(path, " takes ", TakesWhat(field), "; found a list"));
      return SkipValue();
    }
    tokenizer_.Next();
    while (!Consume("]")) {
      if (!ReadValue(path, Here(), field, message)) return false;
      if (!Consume(",") && !At("]")) return Broken("\",\" or \"]\"");
    }
    return true;
  }

  bool ReadValue(std::string path, const std::string& place, const FieldDescriptor* field,
                 Message* message) {
    const Reflection* reflection = message->GetReflection();
    const bool message_field = field->message_type() != nullptr;
    if (message_field != (At("{") || At("<"))) {
      Note(Here(), absl::StrCat(path, " takes ", TakesWhat(field), "; found ",
                                message_field ? Printable(token().text) : "fields in braces"));
      return SkipValue();
    }
    if (field->is_repeated()) {
      path = absl::StrCat(path, "[", reflection->FieldSize(*message, field), "]");
      places_->emplace(path, place);
    }
    if (!message_field) return ReadScalar(path, field, message);
    const std::string closing = At("{") ? "}" : ">";
    tokenizer_.Next();
    Message* inner = field->is_repeated() ? reflection->AddMessage(message, field)
                                          : reflection->MutableMessage(message, field);
    if (!ReadFields(path, closing, inner)) return false;
    tokenizer_.Next();
    return true;
  }

  bool ReadScalar(const std::string& path, const FieldDescriptor* field, Message* message) {
    const std::string place = Here();
    WrittenValue value;
    if (!ReadLiteral(&value)) return false;
    const std::string complaint = AssignScalar(path, field, value, message);
    if (!complaint.empty()) Note(place, complaint);
    return true;
  }

  bool ReadLiteral(WrittenValue* value) {
    value->quoted = token().type == Tokenizer::TYPE_STRING;
    if (value->quoted) {
      // Adjacent literals are one string, like in C.
      for (; token().type == Tokenizer::TYPE_STRING; tokenizer_.Next())
        Tokenizer::ParseStringAppend(token().text, &value->text);
      return !broken_;
    }
    if (Consume("-")) value->text.push_back('-');
    if (token().type != Tokenizer::TYPE_IDENTIFIER && token().type != Tokenizer::TYPE_INTEGER &&
        token().type != Tokenizer::TYPE_FLOAT) {
      return Broken("a value");
    }
    value->text += token().text;
    tokenizer_.Next();
    return !broken_;
  }

  // Skips a value of any kind by counting brackets.
  bool SkipValue() {
    WrittenValue ignored;
    if (!At("{") && !At("<") && !At("[")) return ReadLiteral(&ignored);
    int depth = 0;
    do {
      if (token().type == Tokenizer::TYPE_END) return Broken("a closing bracket");
      depth += At("{") || At("<") || At("[");
      depth -= At("}") || At(">") || At("]");
      tokenizer_.Next();
    } while (depth > 0 && !broken_);
    return !broken_;
  }

  const std::string& file_;
  const std::string& text_;
  std::map<std::string, std::string>* const places_;
  std::vector<std::string>* const errors_;
  bool broken_ = false;
  google::protobuf::io::ArrayInputStream stream_;
  Tokenizer tokenizer_;
};

}  // namespace

TextReader::TextReader(std::string file, google::protobuf::Message* message)
    : file_(std::move(file)), message_(message) {}

bool TextReader::Read(const std::string& text) {
  // Some editors begin a text with a byte-order mark.
  const bool marked = text.compare(0, kByteOrderMark.size(), kByteOrderMark) == 0;
  const std::string unmarked = marked ? text.substr(kByteOrderMark.size()) : text;
  return TextParser(file_, unmarked, &places_, &errors_).ReadFields("", "", message_);
}

void TextReader::Set(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string path = assignment.substr(0, equals),
                    place = absl::StrCat("--set ", Printable(path));
  const std::vector<PathStep> steps = SplitPath(path);
  if (equals == std::string::npos || steps.empty()) {
    return AddError(absl::StrCat("--set ", Printable(assignment),
                                 ": expected path=value, as in train.batch_size=64"));
  }
  PathWalk walk(message_);
  std::string complaint = walk.Follow(steps);
  const WrittenValue value{
      .text = assignment.substr(equals + 1), .quoted = false, .argument = true};
  if (complaint.empty()) complaint = walk.Assign(value);
  if (!complaint.empty()) return AddError(absl::StrCat(place, ": ", complaint));
  places_[walk.path()] = place;
}

std::string TextReader::Place(std::string path) const {
  while (!path.empty()) {
    if (const auto place = places_.find(path); place != places_.end()) return place->second;
    const size_t end = path.find_last_of(".[");
    path.resize(end == std::string::npos ? 0 : end);
  }
  return file_;
}

}  // namespace tandem
