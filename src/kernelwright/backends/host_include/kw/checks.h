// torch's check macros, each in the shape of torch's own: an if-statement where a missing semicolon compiles.
#pragma once

#include "types.h"

namespace c10 {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
// A failed TORCH_CHECK_EQ and its like: the message is streamed into it, and the statement's end throws.
struct FailedCheck {
  const char* file;
  int line;
  std::ostringstream text;
  FailedCheck(const char* f, int l) : file(f), line(l) {}
  ~FailedCheck() noexcept(false) { check_failed(file, line, "", text.str()); }
  std::ostream& stream() { return text; }
};
struct Voidify {
  void operator&(std::ostream&) const {}
};
}  // namespace c10

#define KW_CHECK(condition, ...)                                                                    \
  if (!(condition)) {                                                                               \
    ::c10::check_failed(__FILE__, __LINE__, #condition, ::c10::str(__VA_ARGS__));                   \
  }
#define TORCH_CHECK(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_WITH(kind, condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_WITH_MSG(kind, condition, type, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_LINALG(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_TENSOR_ALL(condition, ...) KW_CHECK((condition).all().item<bool>(), ##__VA_ARGS__)
#define TORCH_CHECK_ARG(condition, number, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOTNULL(x) (x)
#define TORCH_INTERNAL_ASSERT(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) \
  while (false) KW_CHECK(condition, ##__VA_ARGS__)
#define STD_TORCH_CHECK(condition, ...) KW_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERT(condition, ...)              \
  do {                                         \
    KW_CHECK(condition, ##__VA_ARGS__)         \
  } while (false)
#define AT_ASSERTM(condition, ...) AT_ASSERT(condition, ##__VA_ARGS__)
#define AT_ERROR(...)                                                         \
  do {                                                                        \
    ::c10::check_failed(__FILE__, __LINE__, "", ::c10::str(__VA_ARGS__));     \
  } while (false)
#define C10_THROW_ERROR(kind, message) ::c10::check_failed(__FILE__, __LINE__, "", message)
#define TORCH_WARN(...) ((void)0);
#define TORCH_WARN_DEPRECATION(...) ((void)0);
#define TORCH_WARN_ONCE(...) \
  if (false) {               \
  }
#define AT_WARN(...)  \
  do {                \
  } while (false)
#define KW_CHECK_OP(a, b, op)                                                         \
  ((a)op(b)) ? (void)0                                                                \
             : ::c10::Voidify() & ::c10::FailedCheck(__FILE__, __LINE__).stream()     \
                                      << "Check failed: " #a " " #op " " #b " (" << (a) << " vs. " << (b) << "). "
#define TORCH_CHECK_EQ(a, b) KW_CHECK_OP(a, b, ==)
#define TORCH_CHECK_NE(a, b) KW_CHECK_OP(a, b, !=)
#define TORCH_CHECK_GT(a, b) KW_CHECK_OP(a, b, >)
#define TORCH_CHECK_GE(a, b) KW_CHECK_OP(a, b, >=)
#define TORCH_CHECK_LT(a, b) KW_CHECK_OP(a, b, <)
#define TORCH_CHECK_LE(a, b) KW_CHECK_OP(a, b, <=)
#define TORCH_DCHECK_EQ(a, b) while (false) TORCH_CHECK_EQ(a, b)
#define TORCH_DCHECK_NE(a, b) while (false) TORCH_CHECK_NE(a, b)
#define TORCH_DCHECK_GT(a, b) while (false) TORCH_CHECK_GT(a, b)
#define TORCH_DCHECK_GE(a, b) while (false) TORCH_CHECK_GE(a, b)
#define TORCH_DCHECK_LT(a, b) while (false) TORCH_CHECK_LT(a, b)
#define TORCH_DCHECK_LE(a, b) while (false) TORCH_CHECK_LE(a, b)
#define CHECK_EQ(a, b) TORCH_CHECK_EQ(a, b)
#define CHECK_NE(a, b) TORCH_CHECK_NE(a, b)
#define CHECK_GT(a, b) TORCH_CHECK_GT(a, b)
#define CHECK_GE(a, b) TORCH_CHECK_GE(a, b)
#define CHECK_LT(a, b) TORCH_CHECK_LT(a, b)
#define CHECK_LE(a, b) TORCH_CHECK_LE(a, b)
