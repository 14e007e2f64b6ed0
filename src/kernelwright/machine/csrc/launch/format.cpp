#include "launch/format.h"

#include <cstdio>
#include <cstring>

namespace kw {
namespace {
constexpr int MAX_FIELD = 4096;
constexpr u32 MAX_ARGUMENTS = 32;  // as CUDA's printf

struct Directive {
  string flags;
  int width = -1, precision = -1;
  bool wide = false;  // a 64-bit integer
  char letter = 0;
  size_t end = 0;  // index behind it
};

class Formatter {
 public:
  Formatter(const string& format, FormatArguments& arguments) : f_(format), in_(arguments) {}
  Formatted run();

 private:
  bool directive(size_t at, Directive& d);
  int number(size_t& at);
  bool next(u32 bytes, u64& v);
  void apply(const Directive& d);
  void integer(const Directive& d, u64 v);
  string spec(const Directive& d, const char* length) const;

  const string& f_;
  FormatArguments& in_;
  Formatted out_;
};

bool Formatter::next(u32 bytes, u64& v) {
  if (out_.arguments++ < MAX_ARGUMENTS && in_.word(bytes, v)) return true;
  out_.problem = "the format names more arguments than were given";
  return false;
}

int Formatter::number(size_t& at) {
  if (at < f_.size() && f_[at] == '*') {
    at++;
    u64 v = 0;
    next(4, v);
    int n = (int)(i32)(u32)v;
    return n > MAX_FIELD ? MAX_FIELD : n < -MAX_FIELD ? -MAX_FIELD : n;
  }
  int n = -1;
  for (; at < f_.size() && f_[at] >= '0' && f_[at] <= '9'; at++)
    n = (n < 0 ? 0 : n) * 10 + (f_[at] - '0') > MAX_FIELD ? MAX_FIELD : (n < 0 ? 0 : n) * 10 + (f_[at] - '0');
  return n;
}

// Reads what stands behind the '%' at index `at`; false: no directive, print it as it is.
bool Formatter::directive(size_t at, Directive& d) {
  for (at++; at < f_.size() && std::strchr("-+ #0", f_[at]) && d.flags.size() < 8; at++) d.flags += f_[at];
  bool starred = at < f_.size() && f_[at] == '*';
  d.width = number(at);
  if (starred && d.width < 0) d.flags += '-', d.width = -d.width;
  if (at < f_.size() && f_[at] == '.') {
    at++;
    bool star = at < f_.size() && f_[at] == '*';
    d.precision = number(at);
    if (d.precision < 0 && !star) d.precision = 0;
  }
  for (; at < f_.size() && std::strchr("hljztL", f_[at]); at++) d.wide |= std::strchr("ljzt", f_[at]) != nullptr;
  if (at >= f_.size()) return false;
  d.letter = f_[at];
  d.end = at + 1;
  return std::strchr("diouxXcsfFeEgGaAp", d.letter) != nullptr;
}

string Formatter::spec(const Directive& d, const char* length) const {
  string s = "%" + d.flags;
  if (d.width >= 0) s += std::to_string(d.width);
  if (d.precision >= 0) s += "." + std::to_string(d.precision);
  return s + length + d.letter;
}

template <class... A>
string print_one(const string& spec, A... values) {
  char small[512];
  int n = std::snprintf(small, sizeof small, spec.c_str(), values...);
  if (n < 0) return {};
  if ((size_t)n < sizeof small) return string(small, (size_t)n);
  string large((size_t)n + 1, '\0');
  std::snprintf(large.data(), large.size(), spec.c_str(), values...);
  large.resize((size_t)n);
  return large;
}

void Formatter::integer(const Directive& d, u64 v) {
  bool is_signed = d.letter == 'd' || d.letter == 'i';
  if (!d.wide) v = is_signed ? (u64)(i64)(i32)(u32)v : (u32)v;
  // The half modifiers: C converts the promoted argument back.
  size_t from = f_.rfind('%', d.end - 1);
  size_t halves = 0;
  for (size_t i = from; i < d.end; i++) halves += f_[i] == 'h';
  if (halves == 1) v = is_signed ? (u64)(i64)(i16)(u16)v : (u16)v;
  if (halves == 2) v = is_signed ? (u64)(i64)(i8)(u8)v : (u8)v;
  out_.text += print_one(spec(d, "ll"), (long long)v);
}

void Formatter::apply(const Directive& d) {
  u64 v = 0;
  if (std::strchr("diouxX", d.letter)) {
    if (next(d.wide ? 8 : 4, v)) integer(d, v);
  } else if (d.letter == 'c') {
    if (next(4, v)) out_.text += print_one(spec(d, ""), (int)(u8)v);
  } else if (d.letter == 'p') {
    if (next(8, v)) out_.text += print_one(spec(d, ""), reinterpret_cast<void*>(v));
  } else if (d.letter == 's') {
    string s;
    if (!next(8, v)) return;
    if (v == 0)
      s = "(null)";
    else if (!in_.text(v, s))
      out_.problem = "%s with an address that is no string in device memory";
    out_.text += print_one(spec(d, ""), s.c_str());
  } else if (next(8, v)) {
    double x;
    std::memcpy(&x, &v, 8);
    out_.text += print_one(spec(d, ""), x);
  }
}

Formatted Formatter::run() {
  for (size_t at = 0; at < f_.size() && out_.problem.empty();) {
    if (f_[at] != '%') {
      out_.text += f_[at++];
      continue;
    }
    Directive d;
    if (at + 1 < f_.size() && f_[at + 1] == '%') {
      out_.text += '%';
      at += 2;
    } else if (directive(at, d)) {
      if (out_.problem.empty()) apply(d);
      at = d.end;
    } else {
      out_.text += f_[at++];
    }
  }
  return std::move(out_);
}
}  // namespace

Formatted format_text(const string& format, FormatArguments& arguments) { return Formatter(format, arguments).run(); }
}  // namespace kw
