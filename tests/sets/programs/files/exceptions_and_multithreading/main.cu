// The samples' exception header, a std::thread a stream, and an own header with a class of workers.
#include <exception.h>
#include <helper_cuda.h>
#include <helper_timer.h>
#include "workers.h"
int main(int argc, char **argv) {
  bool good = true;
  try {
    Workers workers(3);
    auto sums = workers.run(400);
    for (size_t i = 0; i < sums.size(); i++) good = good && sums[i] == 400 * (long long)(i + 1);
    if (sums.size() != 3) RUNTIME_EXCEPTION("wrong number of workers");
    try {
      RUNTIME_EXCEPTION("as expected");
    } catch (const std::exception &e) {
      good = good && std::string(e.what()).find("as expected") != std::string::npos;
    }
  } catch (const std::exception &e) {
    std::cerr << e;
    return 3;
  }
  printf("%s\n", good ? "PASS" : "FAIL");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
