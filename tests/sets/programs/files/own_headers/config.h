#ifndef CONFIG_H
#define CONFIG_H
#include <vector>
#include <string>
#define BLOCK 64
#define N 200
typedef double real;
struct HostLog {
  std::vector<std::string> lines;
  void add(const std::string &line) { lines.push_back(line); }
};
#endif
