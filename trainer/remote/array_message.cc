#include "trainer/remote/array_message.h"

#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"

namespace tandem::remote {

namespace {

struct WireType {
  DType dtype;
  ArrayInfo::Type type;
};
constexpr WireType kWireTypes[] = {{DType::F32, ArrayInfo::ARRAY_F32},
                                   {DType::F64, ArrayInfo::ARRAY_F64},
                                   {DType::BF16, ArrayInfo::ARRAY_BF16},
                                   {DType::I64, ArrayInfo::ARRAY_I64}};

std::optional<DType> DTypeOf(ArrayInfo::Type type) {
  for (const WireType& wire : kWireTypes) {
    if (wire.type == type) return wire.dtype;
  }
  return std::nullopt;
}

ArrayInfo::Type TypeOf(DType dtype) {
  for (const WireType& wire : kWireTypes) {
    if (wire.dtype == dtype) return wire.type;
  }
  return ArrayInfo::NONE;
}

// Returns the shape, if such an array fits into `num_bytes`.
absl::StatusOr<Shape> ShapeOf(const ArrayInfo& info, DType dtype, size_t num_bytes) {
  if (info.dims_size() > Shape::kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrCat("an array of ", info.dims_size(), " dimensions, at most ", Shape::kMaxDims));
  }
  const auto limit = static_cast<int64_t>(num_bytes / SizeOf(dtype));
  Shape shape;
  int64_t count = 1;
  for (const int64_t dim : info.dims()) {
    // An extent of 0 must not hide a product that overflows.
    if (dim < 0 || dim > limit || (count > 0 && dim > limit / count)) {
      return absl::InvalidArgumentError(
          absl::StrCat("an extent of ", dim, " does not fit a message of ", num_bytes, " bytes"));
    }
    count *= dim;
  }
  switch (info.dims_size()) {
    case 0:
      shape = Shape{};
      break;
    case 1:
      shape = Shape{info.dims(0)};
      break;
    case 2:
      shape = Shape{info.dims(0), info.dims(1)};
      break;
    case 3:
      shape = Shape{info.dims(0), info.dims(1), info.dims(2)};
      break;
    case 4:
      shape = Shape{info.dims(0), info.dims(1), info.dims(2), info.dims(3)};
      break;
    default:
      shape = Shape{info.dims(0), info.dims(1), info.dims(2), info.dims(3), info.dims(4)};
  }
  return shape;
}

}  // namespace

absl::Status CheckArrays(const std::vector<Tensor>& arrays) {
  size_t num_bytes = 0;
  for (const Tensor& array : arrays) {
    if (!array.defined()) continue;
    if (array.device().is_cuda())
      return absl::InvalidArgumentError("remote calls take arrays of the host's memory");
    if (TypeOf(array.dtype()) == ArrayInfo::NONE) {
      return absl::InvalidArgumentError(
          absl::StrCat("remote calls take no ", NameOf(array.dtype()), " arrays"));
    }
    num_bytes += array.num_bytes();
  }
  if (num_bytes <= kMaxArrayBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "arrays of ", num_bytes, " bytes in one call, at most ", kMaxArrayBytes, ": cut the batch"));
}

ArrayInfo* DescribeArray(const Tensor& tensor, ArrayInfos* infos) {
  ArrayInfo* info = infos->Add();
  if (!tensor.defined()) return info;
  info->set_type(TypeOf(tensor.dtype()));
  for (int i = 0; i < tensor.shape().num_dims(); ++i) info->add_dims(tensor.dim(i));
  return info;
}

rpc::Payload MessageOf(std::string small_fields, const std::vector<Tensor>& arrays) {
  rpc::Payload content;
  for (const Tensor& array : arrays) {
    if (array.defined())
      content.Append(array.raw(), array.num_bytes(), std::make_shared<const Tensor>(array));
  }
  rpc::Payload message(std::move(small_fields));
  rpc::AppendBytesField(message, 15, content);
  return message;
}

absl::StatusOr<std::vector<Tensor>> ReadArrays(const ArrayInfos& infos, std::string_view data) {
  std::vector<Tensor> arrays;
  for (const ArrayInfo& info : infos) {
    if (info.type() == ArrayInfo::NONE) {
      arrays.emplace_back();
      continue;
    }
    const std::optional<DType> dtype = DTypeOf(info.type());
    if (!dtype)
      return absl::InvalidArgumentError(
          absl::StrCat("an array of unknown type ", static_cast<int>(info.type())));
    const absl::StatusOr<Shape> shape = ShapeOf(info, *dtype, data.size());
    if (!shape.ok()) return shape.status();
    const size_t num_bytes = static_cast<size_t>(shape->num_elements()) * SizeOf(*dtype);
    if (num_bytes > data.size())
      return absl::InvalidArgumentError("the message is shorter than its arrays");
    Tensor array = Tensor::Empty(*shape, *dtype);
    if (num_bytes > 0) std::memcpy(array.raw(), data.data(), num_bytes);
    data.remove_prefix(num_bytes);
    arrays.push_back(std::move(array));
  }
  if (!data.empty()) return absl::InvalidArgumentError("the message is longer than its arrays");
  return arrays;
}

}  // namespace tandem::remote
