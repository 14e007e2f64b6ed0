// As cub.cuh.
#pragma once
#include "../cub.cuh"
