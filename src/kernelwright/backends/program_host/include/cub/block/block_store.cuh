// Device code only.
#pragma once
#include "../cub.cuh"
