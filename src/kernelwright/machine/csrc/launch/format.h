// printf's formats, applied to arguments of device memory. The host's printf sees only formats that are checked here.
#pragma once
#include "parse/ptx.h"

namespace kw {
class FormatArguments {
 public:
  virtual ~FormatArguments() = default;
  virtual bool word(u32 bytes, u64& out) = 0;            // the next argument, aligned to its size; false: not readable
  virtual bool text(u64 address, string& out) = 0;       // the string at an address
};

struct Formatted {
  string text;
  u32 arguments = 0;
  string problem;  // empty when all went well
};
Formatted format_text(const string& format, FormatArguments& arguments);
}  // namespace kw
