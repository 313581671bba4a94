// The test holds kernels of its own: on a GPU it is nvcc that compiles them.
#include "tests/kernels/cuda/tensor_core_test.cc"
