#include "ps/client/row_message.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/crc32c.h"
#include "kernels/memory/buffer.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

using rpc::Payload;

Payload EncodeAssign(const RequestHeader& header, const RowsToAssign& rows,
                     const RowsMessage& part) {
  auto ids = Buffer::Allocate(part.num_ids() * sizeof(uint64_t));
  auto values = Buffer::Allocate(part.num_ids() * rows.width * sizeof(float));
  std::memcpy(ids->data(), part.ids(), ids->num_bytes());
  for (size_t i = 0; i < part.num_ids(); ++i) {
    std::memcpy(static_cast<float*>(values->data()) + i * rows.width,
                rows.values + part.place(i) * rows.width, rows.width * sizeof(float));
  }
  AssignRequest request;
  *request.mutable_header() = header;
  request.set_table(rows.table);
  request.set_width(static_cast<uint32_t>(rows.width));
  request.set_payload_crc32c(
      Crc32c(Crc32c(0, ids->data(), ids->num_bytes()), values->data(), values->num_bytes()));
  Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 14, ids->data(), ids->num_bytes(), ids);
  rpc::AppendBytesField(payload, 15, values->data(), values->num_bytes(), values);
  return payload;
}

Payload EncodeRead(const RequestHeader& header, const RowsToRead& rows, const RowsMessage& part) {
  ReadRequest request;
  *request.mutable_header() = header;
  request.set_table(rows.table);
  request.set_width(static_cast<uint32_t>(rows.width));
  auto ids = Buffer::Allocate(part.num_ids() * sizeof(uint64_t));
  std::memcpy(ids->data(), part.ids(), ids->num_bytes());
  Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 15, ids->data(), ids->num_bytes(), ids);
  return payload;
}

absl::Status TakeRead(const RowsToRead& rows, const RowsMessage& part, Payload answer) {
  std::vector<std::string_view> pieces;
  if (!rpc::FindBytesField(answer, 15, &pieces)) return absl::InternalError("malformed reply");
  const size_t row_bytes = rows.width * sizeof(float);
  if (const size_t answered = TotalBytes(pieces); answered != part.num_ids() * row_bytes) {
    return absl::InternalError(absl::StrCat("answered ", answered, " bytes of rows, expected ",
                                            part.num_ids() * row_bytes));
  }
  PieceReader reader(pieces);
  std::vector<char> joined(row_bytes);
  for (size_t i = 0; i < part.num_ids(); ++i) {
    std::memcpy(rows.values + part.place(i) * rows.width, reader.Next(row_bytes, joined.data()),
                row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace tandem::ps
