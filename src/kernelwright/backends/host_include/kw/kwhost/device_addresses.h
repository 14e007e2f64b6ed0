// The range of addresses that stands for device memory in a candidate's process; nothing is mapped there.
// backends/device_addresses.py has the same constants.
#pragma once

#include <cstdint>

namespace kw {

constexpr uintptr_t DEVICE_LOW = 0x200000000000, DEVICE_HIGH = 0x300000000000;
inline bool is_device(uintptr_t address) { return DEVICE_LOW <= address && address < DEVICE_HIGH; }

}  // namespace kw
