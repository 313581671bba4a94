// Layers in plain double loops, for forward passes that a test writes from a recipe's text. Shares
// no code with the kernels.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "trainer/autograd/parameter.h"

namespace tandem {

class PlainLayers {
 public:
  using Matrix = std::vector<std::vector<double>>;

 protected:
  PlainLayers(const ParameterSet& parameters, double norm_epsilon) : norm_epsilon_(norm_epsilon) {
    for (const auto& parameter : parameters.all())
      parameters_[parameter->name] = parameter->variable.value();
  }

  // An element of a parameter; 0 if the model does not have the parameter.
  double At(const std::string& name, int64_t i) const {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? 0 : found->second.At(i);
  }
  static Matrix Plus(Matrix a, const Matrix& b) {
    for (size_t t = 0; t < a.size(); ++t) {
      for (size_t f = 0; f < a[t].size(); ++f) a[t][f] += b[t][f];
    }
    return a;
  }
  Matrix Norm(Matrix x, const std::string& name) const {
    for (auto& row : x) {
      double mean = 0, variance = 0;
      for (double v : row) mean += v / static_cast<double>(row.size());
      for (double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(row.size());
      for (size_t f = 0; f < row.size(); ++f) {
        row[f] = (row[f] - mean) / std::sqrt(variance + norm_epsilon_) * At(name + ".gamma", f) +
                 At(name + ".beta", f);
      }
    }
    return x;
  }
  Matrix Project(const Matrix& x, const std::string& name) const {
    const int64_t in = parameters_.at(name + ".weight").dim(0),
                  out = parameters_.at(name + ".weight").dim(1);
    Matrix y(x.size(), std::vector<double>(out));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t o = 0; o < out; ++o) {
        y[t][o] = At(name + ".bias", o);
        for (int64_t i = 0; i < in; ++i) y[t][o] += x[t][i] * At(name + ".weight", i * out + o);
      }
    }
    return y;
  }
  // Projects with the rows of a table, as a head that is tied to the embedding does.
  Matrix ProjectTied(const Matrix& x, const std::string& table) const {
    const int64_t rows = parameters_.at(table).dim(0), dim = parameters_.at(table).dim(1);
    Matrix y(x.size(), std::vector<double>(rows, 0));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t f = 0; f < dim; ++f) y[t][r] += x[t][f] * At(table, r * dim + f);
      }
    }
    return y;
  }

  const double norm_epsilon_;
  std::map<std::string, Tensor> parameters_;
};

}  // namespace tandem
