#pragma once
#include <functional>
#include <vector>
class Matrix {
 public:
  Matrix(int rows, int columns) : rows_(rows), columns_(columns), values_(rows * columns) {}
  void fill(const std::function<double(int, int)> &f) {
    for (int r = 0; r < rows_; r++)
      for (int c = 0; c < columns_; c++) values_[r * columns_ + c] = f(r, c);
  }
  double operator()(int r, int c) const { return values_[r * columns_ + c]; }
  Matrix operator*(const Matrix &other) const;
 private:
  int rows_, columns_;
  std::vector<double> values_;
};
