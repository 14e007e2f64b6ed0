#pragma once
#include "qualifiers.hpp"
#include <ostream>
namespace geo {
template <typename T>
struct Vector3 {
  T x, y, z;
  BOTH Vector3 operator*(T s) const { return {x * s, y * s, z * s}; }
  BOTH bool operator==(const Vector3 &o) const { return x == o.x && y == o.y && z == o.z; }
  friend std::ostream &operator<<(std::ostream &out, const Vector3 &v) { return out << v.x << "," << v.y << "," << v.z; }
};
template <typename T>
BOTH Vector3<T> operator+(const Vector3<T> &a, const Vector3<T> &b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
}  // namespace geo
