#include "trainer/tensor/tensor.h"

#include <cstring>

namespace tandem {

Tensor Tensor::Empty(Shape shape, DType dtype, Device device) {
  return InBuffer(
      Buffer::Allocate(static_cast<size_t>(shape.num_elements()) * SizeOf(dtype), device), 0, shape,
      dtype);
}

Tensor Tensor::Zeros(Shape shape, DType dtype) {
  Tensor tensor = Empty(shape, dtype);
  std::memset(tensor.raw(), 0, tensor.num_bytes());
  return tensor;
}

Tensor Tensor::InBuffer(std::shared_ptr<Buffer> buffer, size_t offset, Shape shape, DType dtype) {
  TANDEM_CHECK_LE(offset + static_cast<size_t>(shape.num_elements()) * SizeOf(dtype),
                  buffer->num_bytes());
  Tensor tensor;
  tensor.buffer_ = std::move(buffer);
  tensor.offset_ = offset;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::Reshape(Shape shape) const {
  TANDEM_CHECK_EQ(shape.num_elements(), num_elements());
  Tensor tensor = *this;
  tensor.shape_ = shape;
  return tensor;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  TANDEM_CHECK(0 <= begin && begin <= end && end <= shape_[0])
      << begin << ".." << end << " of " << shape_;
  const int64_t row = shape_[0] == 0 ? 0 : num_elements() / shape_[0];
  Tensor tensor = *this;
  tensor.offset_ += static_cast<size_t>(begin * row) * SizeOf(dtype_);
  tensor.shape_[0] = end - begin;
  return tensor;
}

Tensor Tensor::To(Device device, Stream& stream) const {
  if (device == this->device()) return *this;
  TANDEM_CHECK(device.is_cuda() != this->device().is_cuda())
      << "arrays go to a device or to the host";
  Tensor tensor = Empty(shape_, dtype_, device);
  if (device.is_cuda()) stream.CopyToDevice(tensor.raw(), raw(), num_bytes());
  // The stream keeps the error.
  else
    stream.CopyToHost(tensor.raw(), raw(), num_bytes()).IgnoreError();
  return tensor;
}

Tensor Tensor::Clone() const {
  TANDEM_CHECK(!device().is_cuda());
  Tensor tensor = Empty(shape_, dtype_);
  std::memcpy(tensor.raw(), raw(), num_bytes());
  return tensor;
}

double Tensor::At(int64_t i) const {
  TANDEM_CHECK(!device().is_cuda());
  switch (dtype_) {
    case DType::F32:
      return data<float>()[i];
    case DType::F64:
      return data<double>()[i];
    case DType::BF16:
      return ToFloat(data<BFloat16>()[i]);
    case DType::I64:
      return static_cast<double>(data<int64_t>()[i]);
    default:
      break;
  }
  TANDEM_CHECK(false) << "no scalar access to " << NameOf(dtype_);
  return 0;
}

void Tensor::Set(int64_t i, double value) const {
  TANDEM_CHECK(!device().is_cuda());
  if (dtype_ == DType::F32)
    data<float>()[i] = static_cast<float>(value);
  else if (dtype_ == DType::BF16)
    data<BFloat16>()[i] = ToBFloat16(static_cast<float>(value));
  else
    data<double>()[i] = value;
}

}  // namespace tandem
