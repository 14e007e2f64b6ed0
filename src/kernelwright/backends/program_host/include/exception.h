// The samples' exceptions with their place. Ours, from the interface of exception.h.
#pragma once
#include <stdlib.h>

#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

template <class Std_Exception>
class Exception : public Std_Exception {
  explicit Exception(const std::string& text) : Std_Exception(text) {}

 public:
  static void throw_it(const char* file, const int line, const char* detailed = "-") {
    std::ostringstream text;
    text << "Exception in file '" << file << "' in line " << line << "\nDetailed description: " << detailed << "\n";
    throw Exception(text.str());
  }
  static void throw_it(const char* file, const int line, const std::string& detailed) {
    throw_it(file, line, detailed.c_str());
  }
  ~Exception() throw() {}
};
template <class E>
inline void handleException(const E& ex) {
  std::cerr << ex.what() << std::endl;
  exit(EXIT_FAILURE);
}
inline std::ostream& operator<<(std::ostream& out, const std::exception& ex) { return out << ex.what() << std::endl; }

#define RUNTIME_EXCEPTION(text) Exception<std::runtime_error>::throw_it(__FILE__, __LINE__, text)
#define LOGIC_EXCEPTION(text) Exception<std::logic_error>::throw_it(__FILE__, __LINE__, text)
#define RANGE_EXCEPTION(text) Exception<std::range_error>::throw_it(__FILE__, __LINE__, text)
