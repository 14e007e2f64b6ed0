// A driver that records launches: for tests of what Python hands to the driver.
#include <stdint.h>
#include <string.h>

unsigned last_sizes[7], launches, asked_shared;
void* last_stream;
unsigned char last_parameters[8][8];
int wanted_parameters;

int cuModuleLoadData(void** module, const void* image) { return *module = (void*)0x10, 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) { return *function = (void*)0x20, 0; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return asked_shared = (unsigned)value, 0; }
int cuGetErrorString(int status, const char** text) { return *text = "refused", 0; }

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
    unsigned sizes[7] = {gx, gy, gz, bx, by, bz, shared};
    memcpy(last_sizes, sizes, sizeof sizes);
    last_stream = stream;
    for (int k = 0; k < wanted_parameters; ++k) memcpy(last_parameters[k], parameters[k], 8);
    ++launches;
    return bx > 1024;
}
